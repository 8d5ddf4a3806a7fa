// Decoders of the formats with blocks of 256 elements: y[256 blocks] from the blocks at x. For model/files/formats/blocks.cpp.
#pragma once
#include <cstddef>

namespace tq {

void decode_q2_k(float* y, const std::byte* x, size_t blocks);
void decode_q3_k(float* y, const std::byte* x, size_t blocks);
void decode_q4_k(float* y, const std::byte* x, size_t blocks);
void decode_q5_k(float* y, const std::byte* x, size_t blocks);
void decode_q6_k(float* y, const std::byte* x, size_t blocks);
void decode_iq4_xs(float* y, const std::byte* x, size_t blocks);

} // namespace tq
