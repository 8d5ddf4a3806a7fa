// The TurboQuant quantiser, the counterpart of model/kv/turboquant.cpp. The includer declares `type`, `scale_rule`,
// `shared uint codes[head_dim]`, workgroup_max and workgroup_add, and includes rotate.glsl, kv_levels.glsl, half.glsl and exact.glsl. All invocations of a workgroup call these.
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
const uint last_sum = unequal ? 2 : 1;

// Returns the sums that sum_terms(last_sum) left: of all channels, or of the even and of the odd ones.
vec2 sums_of_terms() {
#ifdef SUBGROUP
    if (!unequal) return vec2(terms[0], 0.0);
    const float other = subgroupShuffleXor(terms[0], 1);
    return (gl_SubgroupInvocationID & 1) == 0 ? vec2(terms[0], other) : vec2(other, terms[0]);
#else
    return vec2(terms[0], terms[1]);
#endif
}

// codes = the code of each channel; terms = sums of |y| L. Returns sum L^2, where bits are unequal of the even and of the odd channels.
// Ends with a barrier.
uvec2 choose_codes(vec2 norm2) {
    channel_barrier(); // norm2 was read from terms, which are written below
    prepare_codes(norm2.x);
    uvec2 square_levels = uvec2(0);
    EACH_CHANNEL(i) {
        const float y = OWN(channel, i);
        const bool odd = unequal && (i & 1) != 0;
        float level;
        codes[i] = choose_code(i, y, odd ? norm2.y : norm2.x, level);
        precise float product = abs(y) * level;
        OWN(terms, i) = product;
        const uint square = uint(abs(level)) * uint(abs(level));
        square_levels += odd ? uvec2(0, square) : uvec2(square, 0);
    }
    sum_terms(last_sum);
    square_levels.x = workgroup_add(square_levels.x);
    if (unequal) square_levels.y = workgroup_add(square_levels.y);
    return square_levels;
}

// Returns the scale of the levels as fp16 bits.
uint scale_of(uint rule, float norm2, float projected, uint square_levels, int e) {
    if (norm2 == 0.0) return 0u;
    return rule == SCALE_NORM            ? sqrt_quotient_half_bits(norm2, square_levels, e)
           : rule == SCALE_LEAST_SQUARES ? quotient_half_bits(projected, float(square_levels), e)
                                         : quotient_half_bits(norm2, projected, e);
}

// codes = those of channel * 2^e, packed later. Returns the scales, where bits are unequal of even and odd channels, which only
// invocation 0 gets. Ends with a barrier.
uvec2 encode_turboquant(int e) {
    sum_squares(last_sum);
    const vec2 norm2 = sums_of_terms();
    const uvec2 square_levels = choose_codes(norm2);
    const vec2 projected = sums_of_terms();
    uvec2 scales = uvec2(0);
    if (gl_LocalInvocationID.x == 0) {
        scales.x = scale_of(scale_rule, norm2.x, projected.x, square_levels.x, e);
        if (unequal) scales.y = scale_of(scale_rule, norm2.y, projected.y, square_levels.y, e);
    }
    barrier();
    return scales;
}
