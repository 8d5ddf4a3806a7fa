// The TurboQuant quantiser on a rotated vector: codes by codebook, and a scale.
#pragma once
#include "model/kv/rotation.h"

namespace tq {

inline constexpr size_t max_head_dim = 256; // elements of the longest vector that is stored

// The levels of magnitude indices of 1 to 7 bits, ascending, and the fp32 thresholds between them on y^2
// / |y|^2 for head_dim 128 (none for 7 bits, whose levels are uniform).
struct Codebook {
    std::vector<uint32_t> levels, thresholds;
};
const Codebook& codebook(uint32_t magnitude_bits);

// codes[d] and scales[scale_count] = the encoded y[d] * 2^e; the elements of y are 0 or of a magnitude from 2^-62 to 2^27, not
// all 0. If the type has unequal bits, y[i] has the scale i % 4.
void encode_turboquant(KvType type, ScaleRule rule, std::span<uint32_t> codes, std::span<uint16_t> scales,
                       std::span<const float> y, int e);

// y[d] = the decoded codes.
void decode_turboquant(KvType type, std::span<float> y, std::span<const uint32_t> codes, std::span<const uint16_t> scales);

} // namespace tq
