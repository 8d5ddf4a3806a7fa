// Which tokens of a cache have the bits that a cold run would give them: a run of the whole prompt that finds nothing in the
// cache. Only those are reused, so that an answer does not depend on what was cached.
#pragma once
#include "model/forward.h"

namespace tq {

// Returns the greatest n <= known, n < total, such that a prompt of `total` tokens, whose first n are in the cache as a cold run
// stored them, leaves the bits of a cold run when the rest is run.
uint32_t reusable_tokens(const BlockKernels& kernels, uint32_t known, uint32_t total);

// Returns how many tokens have the bits of a cold run of any longer prompt, when `begin` of them had these and one run has
// stored those up to `end`.
uint32_t cold_tokens(const BlockKernels& kernels, uint32_t begin, uint32_t end);

} // namespace tq
