// Correctly rounded divisions and square roots in integer arithmetic: Vulkan guarantees neither. The counterpart of
// model/kv/exact.cpp, with quotient_half_bits of half.glsl.
// Why so much work for a quotient. The cache's bytes have to be the same on every device (model/kv/turboquant.md), and Vulkan
// allows a division an error of 2.5 ulp and derives sqrt from an inverse square root. So mantissas are divided as integers, bit
// by bit, and the remainder says how to round. Here products have up to 48 bits: umulExtended and a comparison of two words
// replace 64-bit integers, which a device need not have.
// A square root of a quotient is found without the quotient: root^2 * divisor is compared with radicand * 2^(2 fraction bits),
// from the highest bit of the root down, and then for the number half a bit above, which decides the rounding. All is exact, so
// no device can differ.
uint mantissa_of(float x) { return (floatBitsToUint(x) & 0x7fffffu) | 0x800000u; }

// Returns n / d of positive normal numbers whose quotient is normal, rounded to nearest.
float divide(float n, float d) {
    uint remainder = mantissa_of(n);
    const uint divisor = mantissa_of(d);
    int exponent = int(floatBitsToUint(n) >> 23) - int(floatBitsToUint(d) >> 23);
    if (remainder < divisor) {
        remainder <<= 1;
        exponent--;
    }
    uint quotient = 1u;
    remainder -= divisor;
    for (int i = 0; i < 23; i++) {
        remainder <<= 1;
        quotient <<= 1;
        if (remainder >= divisor) {
            remainder -= divisor;
            quotient |= 1u;
        }
    }
    if (remainder * 2 > divisor) quotient++; // never equal for two 24-bit numbers
    return uintBitsToFloat((uint(exponent + 126) << 23) + quotient);
}

// Compares a * b with c * 2^shift: -1, 0, 1. 0 <= shift < 32.
int compare_product(uint a, uint b, uint c, int shift) {
    uint high, low;
    umulExtended(a, b, high, low);
    const uint c_high = shift == 0 ? 0u : c >> (32 - shift), c_low = c << shift;
    if (high != c_high) return high < c_high ? -1 : 1;
    return low < c_low ? -1 : low > c_low ? 1 : 0;
}

// Returns the fp16 bits of the exact sqrt(n / s) * 2^e, n a positive normal fp32 number, 1 <= s < 2^24; to nearest, ties to
// even, subnormals kept, at most 65504 (7bff).
uint sqrt_quotient_half_bits(float n, uint s, int e) {
    // n / s = radicand / divisor * 2^twice with 1 <= radicand / divisor < 4 and an even `twice`.
    const int shift = 23 - findMSB(s);
    const uint divisor = s << shift;
    uint radicand = mantissa_of(n);
    int twice = int(floatBitsToUint(n) >> 23) - 150 + shift;
    if ((twice & 1) != 0) {
        radicand <<= 1;
        twice--;
    }
    if (radicand < divisor) {
        radicand <<= 2;
        twice -= 2;
    }
    const int exponent = (twice >> 1) + e;
    if (exponent > 15) return 0x7bffu;
    if (exponent < -25) return 0u;
    const int fraction_bits = exponent >= -14 ? 10 : 24 + exponent; // -1: below the least subnormal
    uint root = 0u;
    for (int i = fraction_bits; i >= 0; i--) {
        const uint candidate = (root | 1u << i) * 2;
        if (compare_product(candidate * candidate, divisor, radicand, 2 * fraction_bits + 2) <= 0) root |= 1u << i;
    }
    const int above = compare_product((2 * root + 1) * (2 * root + 1), divisor, radicand, 2 * fraction_bits + 2);
    if (above < 0 || (above == 0 && (root & 1u) == 1u)) root++;
    return min(exponent >= -14 ? (uint(exponent + 14) << 10) + root : root, 0x7bffu);
}
