// The levels of a codebook, or uniform ones, each chosen for its channel alone; the counterpart of choose_codes() in
// model/kv/turboquant.cpp. It uses the declarations of turboquant.glsl's includer.
// For other numbers of channels the thresholds differ by powers of two.
bool reaches(float square, uint threshold, float norm2) {
    const uint channels = head_dim >> 2 * KV_UNEQUAL(type);
    const uint scaled = channels == 16    ? threshold + (3u << 23)
                        : channels == 32  ? threshold + (2u << 23)
                        : channels == 64  ? threshold + (1u << 23)
                        : channels == 256 ? threshold - (1u << 23)
                                          : threshold;
    precise float limit = uintBitsToFloat(scaled) * norm2;
    return square >= limit;
}

// glslang has no variadic macros.
#define COUNT_THRESHOLDS(n)                                                                                                      \
    for (uint i = 0; i < n; i++) index += reaches(square, thresholds[i], norm2) ? 1u : 0u

// Returns the number of thresholds B for which y^2 >= B * n2.
uint index_by_codebook(uint bits, float square, float norm2) {
    uint index = 0;
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
    } else if (bits == 6) {
        for (uint step = 32; step > 0; step >>= 1) {
            const float i = float(index + step);
            precise float threshold = i * i * uintBitsToFloat(TQ7_THRESHOLD);
            if (reaches(square, floatBitsToUint(threshold), norm2)) index += step;
        }
    }
    return index;
}

// Returns the largest i <= 127 with |y| * 128 >= i * m, m the largest |y|.
uint index_uniformly(float size, float largest) {
    precise float scaled = size * 128.0;
    uint index = 0;
    for (uint step = 64; step > 0; step >>= 1) {
        precise float limit = float(index + step) * largest;
        if (scaled >= limit) index += step;
    }
    return index;
}

uint largest_bits = 0; // of |channel|, if levels are uniform

// Prepares the values of the whole vector that choose_code() needs. All invocations call it.
void prepare_codes(float norm2) {
    if (magnitude_bits(type) != 7) return;
    uint own_largest = 0;
    EACH_CHANNEL(i) own_largest = max(own_largest, floatBitsToUint(abs(OWN(channel, i))));
    largest_bits = workgroup_max(own_largest);
}

// Returns the code of channel i, y; `level` is the factor of |y|.
uint choose_code(uint i, float y, float norm2, out float level) {
    precise float square = y * y;
    uint bits = magnitude_bits(type), index = 0;
    if (KV_UNEQUAL(type) != 0) { // codebooks, each with a constant number of bits
        bits = KV_QUARTER_BITS(KV_BITS(type), i & 3) - 1;
        const uvec4 indices = uvec4(index_by_codebook(KV_BITS(type) + 1, square, norm2), index_by_codebook(KV_BITS(type) - 3, square, norm2),
                                    index_by_codebook(KV_BITS(type), square, norm2), index_by_codebook(KV_BITS(type) - 2, square, norm2));
        index = norm2 == 0.0 ? 0 : indices[i & 3];
        const vec4 levels = vec4(magnitude_level(KV_BITS(type) + 1, index), magnitude_level(KV_BITS(type) - 3, index),
                                 magnitude_level(KV_BITS(type), index), magnitude_level(KV_BITS(type) - 2, index));
        level = levels[i & 3];
    } else {
        if (norm2 != 0.0)
            index = bits == 7 ? index_uniformly(abs(y), uintBitsToFloat(largest_bits)) : index_by_codebook(bits, square, norm2);
        level = magnitude_level(bits, index);
    }
    return index | (y < 0.0 ? 1u << bits : 0u);
}
