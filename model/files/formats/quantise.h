// Encoders of weight formats. Those of blocks of 32 are ggml's reference quantisers, byte for byte; those of K formats are our
// own (quantise_k.h). (The cache's, in model/kv, scale their blocks first and differ.) A row has the same bytes on every machine.
#pragma once
#include "model/files/formats/blocks.h"

namespace tq {

// True for F32, F16, BF16, Q8_0, Q4_0, Q4_1, Q5_0, Q5_1, Q2_K, Q3_K, Q4_K, Q5_K and Q6_K.
bool has_encoder(GgmlType type);

// True if the encoder counts errors by the importances of columns: that of a K format.
bool uses_importance(GgmlType type);

// row = x[cols] in a format that has an encoder, cols a multiple of its block. F16 and BF16 are rounded to nearest, ties to even.
// A block with a NaN or infinite element, or one too large for an fp16 scale, gets a scale that is not finite, so that
// find_nonfinite_block reports it.
//
// importance: how much an error of each column counts, for formats of uses_importance(); empty: by the weights alone.
void quantise_row(GgmlType type, std::span<std::byte> row, std::span<const float> x, std::span<const float> importance = {});

} // namespace tq
