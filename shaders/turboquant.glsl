// The TurboQuant quantiser, the twin of model/kv/turboquant.cpp. The includer declares `type`, `scale_rule`, the parameters' QJL
// signs as p.projection, `shared uint codes[head_dim]`, `shared uint level_scale`, workgroup_max and workgroup_add, and includes
// rotate.glsl, kv_levels.glsl, half.glsl and exact.glsl. All invocations of a workgroup call these.
#include "trellis.glsl"

// Thresholds are powers of two apart for other head_dims.
bool reaches(float square, uint threshold, float norm2) {
    const uint scaled = head_dim == 64 ? threshold + (1u << 23) : head_dim == 256 ? threshold - (1u << 23) : threshold;
    precise float limit = uintBitsToFloat(scaled) * norm2;
    return square >= limit;
}

// glslang has no variadic macros.
#define COUNT_THRESHOLDS(n)                                                                                                      \
    for (uint i = 0; i < n; i++) index += reaches(square, thresholds[i], norm2) ? 1u : 0u

// The number of thresholds B for which y^2 >= B * n2.
uint index_by_codebook(float square, float norm2) {
    uint index = 0;
    const uint bits = magnitude_bits(type);
    if (bits == 1) {
        index = reaches(square, TQ2_THRESHOLDS, norm2) ? 1u : 0u;
    } else if (bits == 2) {
        const uint thresholds[3] = uint[3](TQ3_THRESHOLDS);
        COUNT_THRESHOLDS(3);
    } else if (bits == 3) {
        const uint thresholds[7] = uint[7](TQ4_THRESHOLDS);
        COUNT_THRESHOLDS(7);
    } else if (bits == 4) {
        const uint thresholds[15] = uint[15](TQ5_THRESHOLDS);
        COUNT_THRESHOLDS(15);
    } else if (bits == 5) {
        const uint thresholds[31] = uint[31](TQ6_THRESHOLDS);
        COUNT_THRESHOLDS(31);
    }
    return index;
}

// The largest i <= 127 with |y| * 128 >= i * m, m the largest |y|.
uint index_uniformly(float size, float largest) {
    precise float scaled = size * 128.0;
    uint index = 0;
    for (uint step = 64; step > 0; step >>= 1) {
        precise float limit = float(index + step) * largest;
        if (scaled >= limit) index += step;
    }
    return index;
}

// The code of channel i, y; `level` is what |y| is multiplied by.
uint choose_code(uint i, float y, float norm2, uint largest_bits, out float level) {
    if (KV_TRELLIS(type) != 0) { // the only levels that may have another sign than y
        int own_level;
        const uint code = trellis_code(i, own_level);
        level = float(y < 0.0 ? -own_level : own_level);
        return norm2 == 0.0 ? 0u : code;
    }
    const uint bits = magnitude_bits(type);
    precise float square = y * y;
    const uint index = norm2 == 0.0 ? 0 : bits == 7 ? index_uniformly(abs(y), uintBitsToFloat(largest_bits)) : index_by_codebook(square, norm2);
    level = magnitude_level(bits, index);
    return index | (y < 0.0 ? 1u << bits : 0u);
}

// terms[0] = |channel|^2. Ends with a barrier.
void sum_squares() {
    EACH_CHANNEL(i) {
        precise float square = OWN(channel, i) * OWN(channel, i);
        OWN(terms, i) = square;
    }
    sum_terms();
}

// codes = those of each channel; terms[0] = sum |y| L. Returns sum L^2. Ends with a barrier.
uint choose_codes(float norm2) {
    const uint bits = magnitude_bits(type);
    uint largest_bits = 0, square_levels = 0;
    channel_barrier(); // norm2 was read from terms, which are written below
    if (KV_TRELLIS(type) != 0) {
        round_to_grid(norm2);
        find_paths();
    } else if (bits == 7) {
        EACH_CHANNEL(i) largest_bits = max(largest_bits, floatBitsToUint(abs(OWN(channel, i))));
        largest_bits = workgroup_max(largest_bits);
    }
    EACH_CHANNEL(i) {
        const float y = OWN(channel, i);
        float level;
        codes[i] = choose_code(i, y, norm2, largest_bits, level);
        precise float product = abs(y) * level;
        OWN(terms, i) = product;
        square_levels += uint(abs(level)) * uint(abs(level));
    }
    sum_terms();
    return workgroup_add(square_levels);
}

// channel = what the levels leave of it; what is almost nothing counts as nothing.
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

// codes of channel * 2^e, packed later, and the scales (level scale, residual's length), which invocation 0 alone is given. Ends
// with a barrier.
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
    if (KV_QJL(type) == 0) return uvec2(level_scale, 0);

    subtract_levels(level_scale, e);
    sum_squares();
    const float residual2 = terms[0];
    flip(p.projection);
    hadamard();
    EACH_CHANNEL(i) codes[i] |= OWN(channel, i) < 0.0 ? 1u << (KV_BITS(type) - 1u) : 0u;
    barrier();
    return uvec2(level_scale, gl_LocalInvocationID.x != 0 || residual2 == 0.0 ? 0u : sqrt_quotient_half_bits(residual2, 1, e));
}
