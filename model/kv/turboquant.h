// The TurboQuant codec for one head vector, bit for bit as turboquant.md defines it and shaders/kv_append.comp repeats it.
#pragma once
#include "model/kv/types.h"
#include <cstdint>
#include <span>

namespace tq {

enum class KvSide : uint32_t { key = 0, value = 1 };

// The +-1 diagonal of a rotation: channel i is negated when bit i % 32 of word i / 32 is set.
using Signs = std::array<uint32_t, 8>;

Signs rotation_signs(uint32_t layer, KvSide side);

constexpr bool is_turboquant(KvType t) { return t == KvType::tq4 || t == KvType::tq3 || t == KvType::tq2; }
constexpr uint32_t bits(KvType t) { return 6 - uint32_t(t); } // of tq4, tq3, tq2

// 32-bit words that the codes (or the plain values) of one vector take.
constexpr uint32_t code_words(KvType t, uint32_t head_dim) {
    return t == KvType::f32 ? head_dim : t == KvType::f16 ? head_dim / 2 : head_dim / 32 * bits(t);
}

// The scale that encode() stores for a vector with a NaN or infinite element, with codes of zero: an fp16 NaN.
inline constexpr uint16_t nonfinite_scale = 0x7e00;

// codes[code_words] and the fp16 scale of x[head_dim]; head_dim is 64, 128 or 256. Types f32 and f16 store x itself (scale 1).
uint16_t encode(KvType type, std::span<uint32_t> codes, std::span<const float> x, const Signs& signs);

// levels[head_dim] of stored codes: the vector in the cache's own space, without its scale.
void decode_levels(KvType type, std::span<float> levels, std::span<const uint32_t> codes);

// x = H (s * x), H the unnormalised Hadamard matrix.
void rotate(std::span<float> x, const Signs& signs);

// x = s * (H x) / head_dim: undoes rotate().
void rotate_back(std::span<float> x, const Signs& signs);

// fp16 bits of the exact quotient n / d * 2^e of two positive normal numbers, to nearest, ties to even, at most 65504.
uint16_t quotient_half_bits(float n, float d, int e);

} // namespace tq
