// Weights times inputs in two digits: x = scale * (128 high + low), as inputs_to_int8.comp says. Needs weights.glsl.
#include "int8_dot.glsl"

// Returns four levels less ZERO as int8 numbers.
uint level_bytes(uint codes) {
#if defined(LEVEL_TABLE)
    const uvec4 b = uvec4(ivec4(levels_of(codes))) & 0xffu;
    return b.x | b.y << 8 | b.z << 16 | b.w << 24;
#elif defined(ZERO)
    return ((codes | 0x80808080u) - ZERO * 0x01010101u) ^ 0x80808080u; // no byte borrows from the next
#else
    return codes;
#endif
}

// Returns the levels of 32 weights as int8 numbers.
void levels_as_bytes(Raw32 raw, out uvec4 levels[2]) {
    [[unroll]] for (uint k = 0; k < 4; k++) {
        levels[0][k] = level_bytes(codes4(raw, k));
        levels[1][k] = level_bytes(codes4(raw, 4 + k));
    }
}

// Adds the product of 32 weights and inputs to `sum`. digits: 32 high digits, then 32 low ones; inputs: their scale, and the sums
// of either half of the inputs and of all. The sums of products of digits over 32 columns (16 if these have a scale of their own)
// are exact.
void add_product(inout float sum, uvec4 w[2], Scales32 scales, uvec4 digits[4], vec4 inputs) {
#ifdef SPLIT_SCALES
    const int low = dot16(w[0], digits[2], dot16(w[0], digits[0], 0) << 7), high = dot16(w[1], digits[3], dot16(w[1], digits[1], 0) << 7);
    sum += (float(low) * scales.scale.x + float(high) * scales.scale.y) * inputs.x;
#else
    const int all = dot16(w[1], digits[1], dot16(w[0], digits[0], 0));
    sum += float(dot16(w[1], digits[3], dot16(w[0], digits[2], all << 7))) * scales.scale.x * inputs.x;
#endif
#if defined(HAVE_MINIMUMS) && defined(SPLIT_SCALES)
    sum -= scales.minimum.x * inputs.y + scales.minimum.y * inputs.z;
#elif defined(HAVE_MINIMUMS)
    sum -= scales.minimum.x * inputs.w;
#endif
}
