// The rounding of a scale, the twin of quotient_half_bits in shaders/half.glsl.
#include "model/kv/turboquant.h"
#include <algorithm>
#include <bit>

namespace tq {

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
