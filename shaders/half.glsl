// Conversions to fp16 in integer arithmetic: rounded to nearest, ties to even, whatever the driver's rounding mode is.

// Returns the fp16 bits of x; beyond the range infinity, NaN stays NaN.
uint half_bits(float x) {
    const uint bits = floatBitsToUint(x), sign = (bits >> 16) & 0x8000u, magnitude = bits & 0x7fffffffu;
    if (magnitude > 0x7f800000u) return sign | 0x7e00u;
    if (magnitude >= 0x477ff000u) return sign | 0x7c00u; // 65520 and above
    if (magnitude < 0x33000001u) return sign;            // up to 2^-25
    const int exponent = int(magnitude >> 23) - 127;
    const uint mantissa = (magnitude & 0x7fffffu) | 0x800000u;
    const uint shift = exponent >= -14 ? 13u : uint(-1 - exponent);
    const uint rounded = (mantissa >> shift) + (((mantissa >> shift) & 1u) + (mantissa & ((1u << shift) - 1u)) > (1u << (shift - 1u)) ? 1u : 0u);
    return sign | (exponent >= -14 ? (uint(exponent + 14) << 10) + rounded : rounded);
}

// Returns fp16 bits of the exact n / d * 2^e of two positive normal fp32 numbers, by long division; saturates at 65504.
uint quotient_half_bits(float n, float d, int e) {
    uint remainder = (floatBitsToUint(n) & 0x7fffffu) | 0x800000u;
    const uint divisor = (floatBitsToUint(d) & 0x7fffffu) | 0x800000u;
    int exponent = int(floatBitsToUint(n) >> 23) - int(floatBitsToUint(d) >> 23) + e;
    if (remainder < divisor) {
        remainder <<= 1;
        exponent--;
    }
    if (exponent > 15) return 0x7bffu;
    if (exponent < -25) return 0u;
    if (exponent == -25) return remainder > divisor ? 1u : 0u;
    const int fraction_bits = exponent >= -14 ? 10 : 24 + exponent;
    uint quotient = 1u;
    remainder -= divisor;
    for (int i = 0; i < fraction_bits; i++) {
        remainder <<= 1;
        quotient <<= 1;
        if (remainder >= divisor) {
            remainder -= divisor;
            quotient |= 1u;
        }
    }
    remainder <<= 1;
    if (remainder > divisor || (remainder == divisor && (quotient & 1u) == 1u)) quotient++;
    return min(exponent >= -14 ? (uint(exponent + 14) << 10) + quotient : quotient, 0x7bffu);
}

#include "half_value.glsl"

// Returns the bfloat16 bits of x, to nearest, ties to even; NaN stays NaN.
uint bfloat_bits(float x) {
    const uint bits = floatBitsToUint(x);
    if ((bits & 0x7fffffffu) > 0x7f800000u) return bits >> 16 | 0x40u;
    return (bits + 0x7fffu + (bits >> 16 & 1u)) >> 16;
}
