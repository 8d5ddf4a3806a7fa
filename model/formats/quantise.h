// ggml's reference quantisers, byte for byte. (The cache's, in model/kv, scale their blocks first and differ.)
#pragma once
#include "model/formats/blocks.h"

namespace tq {

// row = x[cols] in Q8_0 or Q4_0, cols a multiple of 32. A block with a NaN or infinite element, or one too large for an fp16
// scale, gets a scale that is not finite, so that find_nonfinite_block reports it.
void quantise_row(GgmlType type, std::span<std::byte> row, std::span<const float> x);

} // namespace tq
