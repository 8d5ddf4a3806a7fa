// fp16 and fp32, in integer arithmetic: the same on every processor, whatever its rounding and denormal modes are.
#pragma once
#include <bit>
#include <cstdint>

namespace tq {

// Returns the value of fp16 bits, without branches and fp32 subnormals (slow on many CPUs), so that loops of it vectorise.
inline float half_to_float(uint16_t h) {
    const uint32_t sign = uint32_t(h & 0x8000) << 16, magnitude = h & 0x7fff;
    const uint32_t normal = (magnitude << 13) + (magnitude >= 0x7c00 ? 224u << 23 : 112u << 23);
    const auto subnormal = std::bit_cast<uint32_t>(float(int(magnitude)) * 0x1p-24f);
    const uint32_t is_subnormal = magnitude < 0x400 ? ~0u : 0; // a mask, since gcc compiles the obvious ?: to a branch
    return std::bit_cast<float>(sign | (normal & ~is_subnormal) | (subnormal & is_subnormal));
}

// Returns the fp16 bits of f, rounded to nearest, ties to even; 65520 and above become infinity, every NaN 7e00 with its sign.
// The counterpart of half_bits in shaders/half.glsl.
inline uint16_t float_to_half(float f) {
    const uint32_t bits = std::bit_cast<uint32_t>(f), sign = (bits >> 16) & 0x8000u, magnitude = bits & 0x7fffffffu;
    if (magnitude > 0x7f800000u) return uint16_t(sign | 0x7e00u);
    if (magnitude >= 0x477ff000u) return uint16_t(sign | 0x7c00u); // 65520
    if (magnitude < 0x33000001u) return uint16_t(sign);            // up to 2^-25
    const int exponent = int(magnitude >> 23) - 127;
    const uint32_t mantissa = (magnitude & 0x7fffffu) | 0x800000u;
    const uint32_t shift = exponent >= -14 ? 13 : uint32_t(-1 - exponent);
    const uint32_t kept = mantissa >> shift, rest = mantissa & ((1u << shift) - 1), half = 1u << (shift - 1);
    const uint32_t rounded = kept + ((kept & 1) + rest > half ? 1 : 0);
    return uint16_t(sign | (exponent >= -14 ? (uint32_t(exponent + 14) << 10) + rounded : rounded));
}

} // namespace tq
