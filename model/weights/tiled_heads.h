// A hybrid's value heads in the order of its GGUF files: of each key head the first, then of each the second (tiled_heads in
// model/config.h), whereas Hugging Face has all of a key head's together.
#pragma once
#include "model/config.h"
#include "model/weights/tensor.h"

namespace tq {

// Returns a tensor of the loader's, whose heads are not tiled, with its value heads in that order; a vector comes in F32. Others
// than a recurrent layer's, by their names in GGUF, and all if the order is the same, are returned unchanged.
Tensor in_tiled_order(const Tensor& tensor, const Recurrent& recurrent);

} // namespace tq
