// Which tokens of a cache have the bits that a cold run would give them: a run of the whole prompt that finds nothing in the
// cache. Only those are reused, so that an answer does not depend on what was cached.
#pragma once
#include "model/forward.h"

namespace tq {

// A full-precision window is not in pages. What is found of a prompt's beginning is therefore cut so that the window is full of
// tokens that are run when the prompt's last one is: only those right behind the cut read codes where a cold run reads fp16.
// Returns the greatest n <= known that does so for a prompt of `total` tokens; without a window, or with one of one token, all
// but the last.
uint32_t before_window(uint32_t known, uint32_t total, uint32_t window_tokens);

// Returns how many of the first `known` tokens of a slot stay for a prompt of `total` tokens that begins with them: to which it
// can be cut (Cache::kept()). Where its window does not survive the cut: as before_window(), and none of a deterministic cache.
uint32_t kept_of_slot(const Forward& forward, uint32_t slot, uint32_t known, uint32_t total);

// Whether what a cache has in pages is enough for a promise of equal bits, where one is made (ForwardOptions::deterministic).
bool keeps_promise(const Forward& forward);

// Returns the greatest n <= known, n < total, such that a prompt of `total` tokens, whose first n are in the cache as a cold run
// stored them, leaves the bits of a cold run when the rest is run.
uint32_t reusable_tokens(const BlockKernels& kernels, uint32_t known, uint32_t total);

// Returns how many tokens have the bits of a cold run of any longer prompt, when `begin` of them had these and one run has
// stored those up to `end`.
uint32_t cold_tokens(const BlockKernels& kernels, uint32_t begin, uint32_t end);

} // namespace tq
