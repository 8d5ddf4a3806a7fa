#include "model/kv/exact.h"
#include <algorithm>
#include <bit>

namespace tq {
namespace {

uint32_t mantissa(float x) { return (std::bit_cast<uint32_t>(x) & 0x7fffffu) | 0x800000u; }

int biased_exponent(float x) { return int(std::bit_cast<uint32_t>(x) >> 23); }

} // namespace

float divide(float n, float d) {
    uint64_t dividend = mantissa(n);
    const uint32_t divisor = mantissa(d);
    int exponent = biased_exponent(n) - biased_exponent(d);
    if (dividend < divisor) {
        dividend <<= 1;
        exponent--;
    }
    dividend <<= 23;
    auto quotient = uint32_t(dividend / divisor);
    if (dividend % divisor * 2 > divisor) quotient++; // never equal for two 24-bit numbers
    return std::bit_cast<float>((uint32_t(exponent + 126) << 23) + quotient);
}

uint16_t quotient_half_bits(float n, float d, int e) {
    uint64_t dividend = mantissa(n);
    const uint32_t divisor = mantissa(d);
    int exponent = biased_exponent(n) - biased_exponent(d) + e;
    if (dividend < divisor) {
        dividend <<= 1;
        exponent--;
    }
    if (exponent > 15) return 0x7bff;
    if (exponent < -25) return 0;
    if (exponent == -25) return dividend > divisor ? 1 : 0;
    const int fraction_bits = exponent >= -14 ? 10 : 24 + exponent;
    dividend <<= fraction_bits;
    auto quotient = uint32_t(dividend / divisor);
    const uint64_t twice_rest = dividend % divisor * 2;
    if (twice_rest > divisor || (twice_rest == divisor && (quotient & 1) == 1)) quotient++;
    return uint16_t(std::min(exponent >= -14 ? (uint32_t(exponent + 14) << 10) + quotient : quotient, 0x7bffu));
}

uint16_t sqrt_quotient_half_bits(float n, uint32_t s, int e) {
    // n / s = radicand / divisor * 2^twice with 1 <= radicand / divisor < 4 and an even `twice`.
    const int shift = std::countl_zero(s) - 8;
    const uint32_t divisor = s << shift;
    uint32_t radicand = mantissa(n);
    int twice = biased_exponent(n) - 150 + shift;
    if ((twice & 1) != 0) {
        radicand <<= 1;
        twice--;
    }
    if (radicand < divisor) {
        radicand <<= 2;
        twice -= 2;
    }
    const int exponent = twice / 2 + e;
    if (exponent > 15) return 0x7bff;
    if (exponent < -25) return 0;
    const int fraction_bits = exponent >= -14 ? 10 : 24 + exponent; // -1: below the least subnormal
    const uint64_t square = uint64_t(radicand) << (2 * fraction_bits + 2);
    uint32_t root = 0;
    for (int i = fraction_bits; i >= 0; i--) {
        const uint32_t candidate = (root | 1u << i) * 2;
        if (uint64_t(candidate * candidate) * divisor <= square) root |= 1u << i;
    }
    const uint64_t midpoint = uint64_t((2 * root + 1) * (2 * root + 1)) * divisor;
    if (square > midpoint || (square == midpoint && (root & 1) == 1)) root++;
    return uint16_t(std::min(exponent >= -14 ? (uint32_t(exponent + 14) << 10) + root : root, 0x7bffu));
}

} // namespace tq
