// Correctly rounded divisions and square roots in integer arithmetic, the counterparts of shaders/exact.glsl and
// shaders/half.glsl: Vulkan guarantees neither, and the cache's bytes depend on them.
#pragma once
#include <cstdint>

namespace tq {

// Returns n / d of positive normal numbers whose quotient is normal, rounded to nearest.
float divide(float n, float d);

// Returns fp16 bits of the exact n / d * 2^e of two positive normal numbers, to nearest, ties to even, at most 65504 (7bff).
uint16_t quotient_half_bits(float n, float d, int e);

// Returns fp16 bits of the exact sqrt(n / s) * 2^e, n a positive normal number, 1 <= s < 2^24; rounded as quotient_half_bits.
uint16_t sqrt_quotient_half_bits(float n, uint32_t s, int e);

} // namespace tq
