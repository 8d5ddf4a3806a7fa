// fp16 in integer arithmetic, the twin of shaders/half.glsl.
#include "model/kv/turboquant.h"
#include <algorithm>
#include <bit>

namespace tq {

uint16_t half_bits(float x) {
    const uint32_t bits = std::bit_cast<uint32_t>(x), sign = (bits >> 16) & 0x8000u, magnitude = bits & 0x7fffffffu;
    if (magnitude > 0x7f800000u) return uint16_t(sign | 0x7e00u);
    if (magnitude >= 0x477ff000u) return uint16_t(sign | 0x7c00u); // 65520 and above
    if (magnitude < 0x33000001u) return uint16_t(sign);            // up to 2^-25
    const int exponent = int(magnitude >> 23) - 127;
    const uint32_t mantissa = (magnitude & 0x7fffffu) | 0x800000u;
    const uint32_t shift = exponent >= -14 ? 13 : uint32_t(-1 - exponent);
    const uint32_t kept = mantissa >> shift, rest = mantissa & ((1u << shift) - 1), half = 1u << (shift - 1);
    const uint32_t rounded = kept + ((kept & 1) + rest > half ? 1 : 0);
    return uint16_t(sign | (exponent >= -14 ? (uint32_t(exponent + 14) << 10) + rounded : rounded));
}

float half_value(uint16_t bits) {
    const uint32_t sign = uint32_t(bits & 0x8000u) << 16, exponent = (bits >> 10) & 31, mantissa = bits & 1023;
    if (exponent == 31) return std::bit_cast<float>(sign | 0x7f800000u | mantissa << 13);
    if (exponent != 0) return std::bit_cast<float>(sign | (exponent + 112) << 23 | mantissa << 13);
    const float magnitude = float(mantissa) * 0x1p-24f;
    return sign != 0 ? -magnitude : magnitude;
}

uint16_t quotient_half_bits(float n, float d, int e) {
    const uint32_t n_bits = std::bit_cast<uint32_t>(n), d_bits = std::bit_cast<uint32_t>(d);
    uint32_t remainder = (n_bits & 0x7fffffu) | 0x800000u;
    const uint32_t divisor = (d_bits & 0x7fffffu) | 0x800000u;
    int exponent = int(n_bits >> 23) - int(d_bits >> 23) + e;
    if (remainder < divisor) {
        remainder <<= 1;
        exponent--;
    }
    if (exponent > 15) return 0x7bff;
    if (exponent < -25) return 0;
    if (exponent == -25) return remainder > divisor ? 1 : 0;
    const int fraction_bits = exponent >= -14 ? 10 : 24 + exponent;
    uint32_t quotient = 1;
    remainder -= divisor;
    for (int i = 0; i < fraction_bits; i++) {
        remainder <<= 1;
        quotient <<= 1;
        if (remainder >= divisor) {
            remainder -= divisor;
            quotient |= 1;
        }
    }
    remainder <<= 1;
    if (remainder > divisor || (remainder == divisor && (quotient & 1) == 1)) quotient++;
    return uint16_t(std::min(exponent >= -14 ? (uint32_t(exponent + 14) << 10) + quotient : quotient, 0x7bffu));
}

} // namespace tq
