// Cold tokens. A cold run of a prompt finds nothing in the cache. An answer must not depend on what was cached, so a token is
// reused only if its stored vectors have the bits that a cold run would give them, and if the rest of the prompt then runs with
// the kernels of the cold run. Both are questions about slices (model/span_run.cpp), because a token's bits depend on the kernels
// of its slice, and these on the slice's length:
// - All slices of at least BlockKernels::many tokens give a token the same bits. If slices are evened, a prompt of at least
//   `many` tokens has only such slices: all its tokens are cold, and all but its last `many` can be reused. A shorter prompt has
//   none.
// - Otherwise only whole blocks from position 0 on are alike: a last slice of another length is not cold.
// - If every row is separate (block == 0), or blocks give a token the bits of a separate row (many == 1), each token has one set
//   of bits, and all are cold.
// Sampled tokens ran as separate rows. They are not cold, unless all are. Windows and recurrent states add one more limit: a
// slot can be cut to a checkpoint only (Cache::kept), so a run pauses at lengths that need a checkpoint (checkpoint_positions).
#pragma once
#include "model/forward.h"

namespace tq {

// Returns the greatest n <= known, n < total, such that a prompt of `total` tokens gets the bits of a cold run if its first n
// tokens are in the cache as a cold run stored them and the rest is run.
uint32_t reusable_tokens(const BlockKernels& kernels, uint32_t known, uint32_t total);

// Returns how many of the first `known` tokens of a slot stay for a prompt of `total` tokens that begins with them. The slot can
// be cut to that length (Cache::kept()), and the rest has the bits of a cold run as above.
uint32_t reusable_of_slot(const Forward& forward, uint32_t slot, uint32_t known, uint32_t total);

// Returns how many tokens have the bits of a cold run of any longer prompt, if the first `begin` have them and one run has stored
// the tokens from `begin` to `end`.
uint32_t cold_tokens(const BlockKernels& kernels, uint32_t begin, uint32_t end);

// Returns the lengths at which the run of a prompt's tokens begin .. total - 1 pauses, in order, so that a checkpoint is kept
// there (Cache::checkpoint()); it computes the same slices as without the pauses. At ends of pages: the last one that the kernels
// allow, the last one before the last 512 tokens and before each mark, and one every 2048 tokens after the first mark. Others are
// at the marks, which are lengths at which another prompt may branch off, though seldom before the first. 0 is none.
std::vector<uint32_t> checkpoint_positions(const BlockKernels& kernels, uint32_t begin, uint32_t total,
                                           std::span<const uint32_t> marks);

} // namespace tq
