// Which tokens of a cache have the bits that a cold run would give them: a run of the whole prompt that finds nothing in the
// cache. Only those are reused, so that an answer does not depend on what was cached.
#pragma once
#include "model/forward.h"

namespace tq {

// Returns the greatest n <= known, n < total, such that a prompt of `total` tokens, whose first n are in the cache as a cold run
// stored them, leaves the bits of a cold run when the rest is run.
uint32_t reusable_tokens(const BlockKernels& kernels, uint32_t known, uint32_t total);

// Returns how many of the first `known` tokens of a slot stay for a prompt of `total` tokens that begins with them: to which it
// can be cut (Cache::kept()), and which leave the bits of a cold run as above.
uint32_t reusable_of_slot(const Forward& forward, uint32_t slot, uint32_t known, uint32_t total);

// Returns how many tokens have the bits of a cold run of any longer prompt, when `begin` of them had these and one run has
// stored those up to `end`.
uint32_t cold_tokens(const BlockKernels& kernels, uint32_t begin, uint32_t end);

// Returns where the run of a prompt's tokens begin .. total - 1 pauses, in order, so that a checkpoint is kept there
// (Cache::checkpoint()): it then computes the slices that it has without. At ends of pages are the last one that the kernels
// allow, the last one before the last 512 tokens and before each mark, and one every 2048 tokens after the first mark; others are
// at the marks, which are lengths at which another prompt may branch off, though seldom before the first. 0 is none.
std::vector<uint32_t> checkpoint_positions(const BlockKernels& kernels, uint32_t begin, uint32_t total,
                                           std::span<const uint32_t> marks);

} // namespace tq
