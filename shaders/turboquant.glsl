// The TurboQuant quantiser, the counterpart of model/kv/turboquant.cpp. The includer declares `type`, `scale_rule`, the
// parameters' QJL signs as p.projection, `shared uint codes[head_dim]`, `shared uint level_scale`, workgroup_max and
// workgroup_add, and includes rotate.glsl, kv_levels.glsl, half.glsl and exact.glsl. All invocations of a workgroup call these.
#ifdef TRELLIS
#include "trellis.glsl"
#else
#include "codebook.glsl"
#endif

// terms[0] = |channel|^2. Ends with a barrier.
void sum_squares() {
    EACH_CHANNEL(i) {
        precise float square = OWN(channel, i) * OWN(channel, i);
        OWN(terms, i) = square;
    }
    sum_terms();
}

// codes = the code of each channel; terms[0] = sum |y| L. Returns sum L^2. Ends with a barrier.
uint choose_codes(float norm2) {
    channel_barrier(); // norm2 was read from terms, which are written below
    prepare_codes(norm2);
    uint square_levels = 0;
    EACH_CHANNEL(i) {
        const float y = OWN(channel, i);
        float level;
        codes[i] = choose_code(i, y, norm2, level);
        precise float product = abs(y) * level;
        OWN(terms, i) = product;
        square_levels += uint(abs(level)) * uint(abs(level));
    }
    sum_terms();
    return workgroup_add(square_levels);
}

#ifndef TRELLIS
// channel = the residual of the levels; an almost cancelled element counts as zero.
void subtract_levels(uint scale, int e) {
    const float unit = scaled_half(scale, e);
    EACH_CHANNEL(i) {
        const float y = OWN(channel, i);
        precise float part = unit * magnitude_level(magnitude_bits(type), codes[i] & ((1u << magnitude_bits(type)) - 1u));
        precise float above = y - part, below = y + part;
        const float rest = y < 0.0 ? below : above;
        OWN(channel, i) = ((floatBitsToUint(rest) >> 23) & 255u) < 127u - 39u ? 0.0 : rest;
    }
}

// Adds QJL's bit to every code, above the magnitude's bits. Returns the residual's length as fp16 bits. Ends with a barrier.
uint add_residual_signs(int e) {
    subtract_levels(level_scale, e);
    sum_squares();
    const float residual2 = terms[0];
    FLIP(p.projection);
    hadamard();
    EACH_CHANNEL(i) codes[i] |= OWN(channel, i) < 0.0 ? 1u << (KV_BITS(type) - 1u) : 0u;
    barrier();
    return gl_LocalInvocationID.x != 0 || residual2 == 0.0 ? 0u : sqrt_quotient_half_bits(residual2, 1, e);
}
#endif

// codes = those of channel * 2^e, packed later. Returns the scales (level scale, residual's length), which only invocation 0
// gets. Ends with a barrier.
uvec2 encode_turboquant(int e) {
    sum_squares();
    const float norm2 = terms[0];
    const uint square_levels = choose_codes(norm2);
    const uint rule = KV_QJL(type) != 0 ? SCALE_LEAST_SQUARES : scale_rule;
    if (gl_LocalInvocationID.x == 0)
        level_scale = norm2 == 0.0                  ? 0u
                      : rule == SCALE_NORM          ? sqrt_quotient_half_bits(norm2, square_levels, e)
                      : rule == SCALE_LEAST_SQUARES ? quotient_half_bits(terms[0], float(square_levels), e)
                                                    : quotient_half_bits(norm2, terms[0], e);
    barrier();
#ifndef TRELLIS
    if (KV_QJL(type) != 0) return uvec2(level_scale, add_residual_signs(e));
#endif
    return uvec2(level_scale, 0);
}
