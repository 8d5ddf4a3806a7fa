// Reads the cache: values of stored vectors without their scale. `at` is the vector's number (head of the slice, position).
layout(binding = CACHE_BINDING) readonly buffer Cache { uvec4 cache[]; };

uint cache_word(uint i) { return cache[i >> 2][i & 3]; }

float scale_at(uint type, uint scales, uint at) {
    if (!is_turboquant(type)) return 1.0;
    const vec2 pair = unpackHalf2x16(cache_word(scales + (at >> 1)));
    return (at & 1) == 0 ? pair.x : pair.y;
}

// +-level of a nibble whose highest bit is the sign
float signed_level(uint type, uint index, uint negative) {
    const float level = magnitude_level(type, index);
    return negative != 0 ? -level : level;
}

// v[0 .. n - 1] = channels [c, c + n) of vector `at`; n <= 8, c a multiple of n: the bits of each plane lie in one word.
void load_channels(uint type, uint codes, uint at, uint c, uint n, out float v[8]) {
    const uint base = codes + at * code_words(type);
    if (type == KV_F32) {
        for (uint i = 0; i < n; i++) v[i] = uintBitsToFloat(cache_word(base + c + i));
    } else if (type == KV_F16) {
        for (uint i = 0; i < n; i++) {
            const vec2 pair = unpackHalf2x16(cache_word(base + (c + i) / 2));
            v[i] = ((c + i) & 1) == 0 ? pair.x : pair.y;
        }
    } else if (type == KV_TQ4) {
        const uint word = cache_word(base + c / 8) >> (4 * (c & 7));
        for (uint i = 0; i < n; i++) v[i] = signed_level(type, (word >> (4 * i)) & 7, (word >> (4 * i)) & 8);
    } else {
        const uint bits = turboquant_bits(type) - 1; // of a magnitude
        const uint magnitudes = cache_word(base + c * bits / 32) >> (c * bits & 31);
        const uint signs = cache_word(base + (head_dim * bits + c) / 32) >> (c & 31);
        for (uint i = 0; i < n; i++)
            v[i] = signed_level(type, (magnitudes >> (bits * i)) & ((1u << bits) - 1u), (signs >> i) & 1);
    }
}

// v = channels [32 b, 32 b + 32) of vector `at`
void load32(uint type, uint codes, uint at, uint b, out vec4 v[8]) {
    const uint base = codes + at * code_words(type);
    if (type == KV_F32) {
        for (uint i = 0; i < 8; i++) v[i] = uintBitsToFloat(cache[base / 4 + b * 8 + i]);
    } else if (type == KV_F16) {
        for (uint i = 0; i < 4; i++) {
            const uvec4 w = cache[base / 4 + b * 4 + i];
            v[2 * i] = vec4(unpackHalf2x16(w.x), unpackHalf2x16(w.y));
            v[2 * i + 1] = vec4(unpackHalf2x16(w.z), unpackHalf2x16(w.w));
        }
    } else if (type == KV_TQ4) {
        const uvec4 w = cache[base / 4 + b];
        for (uint i = 0; i < 8; i++)
            for (uint j = 0; j < 4; j++) {
                const uint nibble = w[i / 2] >> (16 * (i & 1) + 4 * j);
                v[i][j] = signed_level(type, nibble & 7, nibble & 8);
            }
    } else {
        const uint bits = turboquant_bits(type) - 1;
        const uint low = cache_word(base + b * bits), high = bits == 2 ? cache_word(base + b * bits + 1) : 0;
        const uint signs = cache_word(base + head_dim * bits / 32 + b);
        for (uint i = 0; i < 8; i++)
            for (uint j = 0; j < 4; j++) {
                const uint k = 4 * i + j, magnitudes = bits == 2 && k >= 16 ? high >> (2 * (k - 16)) : low >> (bits * k);
                v[i][j] = signed_level(type, magnitudes & ((1u << bits) - 1u), (signs >> k) & 1);
            }
    }
}
