// Converts the rows of q and k from the order in which RoPE turns neighbours to that in which it turns halves of a head.
#pragma once
#include "model/weights/tensor.h"

namespace tq {

// Returns `tensor`, whose heads have `head_dim` rows each, with rows 0, 2, 4, ... of every head in its first half and rows 1, 3,
// 5, ... in its second; they are read from the file's on demand. So all models have one RoPE, and a cache the same bytes
// whatever file the model came in. Neither scores nor sums change, since queries and keys are reordered alike.
Tensor rope_split(const Tensor& tensor, uint32_t head_dim);

// Returns the inverse: the tensor from which rope_split() makes this one.
Tensor rope_neighbours(const Tensor& tensor, uint32_t head_dim);

} // namespace tq
