// The TurboQuant quantiser, the counterpart of model/kv/turboquant.cpp. The includer declares `type`, `scale_rule`,
// `shared uint codes[head_dim]`, workgroup_max, workgroup_add and store_scale, and includes rotate.glsl, kv_levels.glsl,
// half.glsl and exact.glsl. All invocations of a workgroup call these.
// channel is the rotated vector over 2^e. norm2 is its square norm, or with unequal bits that of each quarter. With a codebook a
// level is chosen without dividing: |y| has passed a threshold B if y^2 >= B * norm2. Then two sums follow: projected, of |y|
// times level, in fp32 in a fixed order, and square_levels, in integers. The scale is norm2 / projected (unbiased),
// projected / square_levels (least squares) or sqrt(norm2 / square_levels) (norm), times 2^e, rounded to fp16 by integer division
// (exact.glsl).
#ifdef TRELLIS
#include "trellis.glsl"
#else
#include "codebook.glsl"
#endif

// terms[0] = |channel|^2. Ends with a barrier.
void sum_squares(uint last) {
    EACH_CHANNEL(i) {
        precise float square = OWN(channel, i) * OWN(channel, i);
        OWN(terms, i) = square;
    }
    sum_terms(last);
}

const bool unequal = KV_UNEQUAL(type) != 0;
const uint last_sum = unequal ? KV_QUARTERS : 1;

// Returns the sums that sum_terms(last_sum) left: of all channels, or of each quarter.
vec4 sums_of_terms() {
    if (!unequal) return vec4(terms[0], 0.0, 0.0, 0.0);
#ifdef SUBGROUP
    return vec4(subgroupShuffle(terms[0], 0), subgroupShuffle(terms[0], 1), subgroupShuffle(terms[0], 2), subgroupShuffle(terms[0], 3));
#else
    return vec4(terms[0], terms[1], terms[2], terms[3]);
#endif
}

// codes = the code of each channel; terms = sums of |y| L. Returns sum L^2, if bits are unequal, of each quarter. Ends with a
// barrier.
uvec4 choose_codes(vec4 norm2) {
    channel_barrier(); // norm2 was read from terms, which are written below
    prepare_codes(norm2.x);
    uvec4 square_levels = uvec4(0);
    EACH_CHANNEL(i) {
        const float y = OWN(channel, i);
        const uint quarter = unequal ? i & 3 : 0;
        float level;
        codes[i] = choose_code(i, y, norm2[quarter], level);
        precise float product = abs(y) * level;
        OWN(terms, i) = product;
        const uint square = uint(abs(level)) * uint(abs(level));
        square_levels += uvec4(square) * uvec4(equal(uvec4(quarter), uvec4(0, 1, 2, 3)));
    }
    sum_terms(last_sum);
    [[unroll]] for (uint quarter = 0; quarter < last_sum; quarter++) square_levels[quarter] = workgroup_add(square_levels[quarter]);
    return square_levels;
}

// Returns the scale of the levels as fp16 bits.
uint scale_of(uint rule, float norm2, float projected, uint square_levels, int e) {
    if (norm2 == 0.0) return 0u;
    return rule == SCALE_NORM            ? sqrt_quotient_half_bits(norm2, square_levels, e)
           : rule == SCALE_LEAST_SQUARES ? quotient_half_bits(projected, float(square_levels), e)
                                         : quotient_half_bits(norm2, projected, e);
}

// codes = codes of channel * 2^e, packed later. Stores the scales of vector `at`: one, or if bits are unequal one per quarter. If
// the vector is not finite, the scale is a NaN, which appears in every score. Ends with a barrier.
void encode_turboquant(int e, uint at, bool finite) {
    sum_squares(last_sum);
    const vec4 norm2 = sums_of_terms();
    const uvec4 square_levels = choose_codes(norm2);
    const vec4 projected = sums_of_terms();
    EACH(i, last_sum) store_scale(at, i, finite ? scale_of(scale_rule, norm2[i], projected[i], square_levels[i], e) : 0x7e00u);
    barrier();
}
