// Plain block quantisers for the cache, bit for bit as turboquant.md defines them and shaders/blocks_codec.glsl repeats them. A
// block is y[ggml_block]: every element is 0 or 2^-62 <= |y| < 2^11, and y * 2^e are the true values, -128 <= e <= 127. Each
// encoder writes one code per element and returns fp16 bits.
#pragma once
#include <cstdint>
#include <span>

namespace tq {

inline constexpr uint32_t ggml_block = 32; // elements of a block of q8_0 or q4_0

// ggml's reference quantiser with a scale of at most 65504; length 32. Codes are bytes in two's complement.
uint32_t encode_q8_0(std::span<uint32_t> codes, std::span<const float> y, int e);

// ggml's reference quantiser with a scale of a magnitude of at most 65504; length 32. Codes are 0 .. 15; the scale has a sign.
uint32_t encode_q4_0(std::span<uint32_t> codes, std::span<const float> y, int e);

// Returns the true value of a code, rounded once.
inline float decode_q8_0(uint32_t code, float scale) { return float(int8_t(uint8_t(code))) * scale; }
inline float decode_q4_0(uint32_t code, float scale) { return float(int(code) - 8) * scale; }

} // namespace tq
