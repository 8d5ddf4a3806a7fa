// Reads the cache of `k_type` and `v_type`. `at` is a vector's number in the slice, or in the window. All
// invocations of a workgroup call prepare_levels() first, and then a barrier.
#include "kv_levels.glsl"
#include "level_table.h"
#include "read.glsl"
#include "half_value.glsl"
READ_VECTORS(CACHE_BINDING, cache)

#ifdef TEXEL
uint cache_word(uint i) { return cache(i >> 2)[i & 3]; }
#else
layout(binding = CACHE_BINDING) readonly buffer CacheWords { uint cache_words[]; };
uint cache_word(uint i) { return cache_words[i]; }
#endif

// Returns number n of the vector's fp16 scales.
float stored_scale(uint type, uint scales, uint at, uint n) {
    const uint i = at * KV_SCALES(type, head_dim) + n;
    return half_value(cache_word(scales + (i >> 1)) >> (16 * (i & 1)));
}

// Returns the factor of a vector's loaded values. If bits are unequal: the factors of its quarters, which are channels 4 n, 4 n +
// 1, 4 n + 2 and 4 n + 3.
vec4 vector_scales(uint type, uint scales, uint at) {
    if (KV_FAMILY(type) != KV_TURBOQUANT) return vec4(1.0, 0.0, 0.0, 0.0);
    if (KV_UNEQUAL(type) == 0) return vec4(stored_scale(type, scales, at, 0), 0.0, 0.0, 0.0);
    const uint first = cache_word(scales + 2 * at), second = cache_word(scales + 2 * at + 1);
    return vec4(half_value(first), half_value(first >> 16), half_value(second), half_value(second >> 16));
}

// Returns the scale of channel c's block.
float block_scale(uint type, uint scales, uint at, uint c) {
    return KV_FAMILY(type) == KV_BLOCKS ? stored_scale(type, scales, at, c / 32) : 1.0;
}

// Returns a plain value. A driver may flush denormal fp16 values; the error is at most that of rounding a value of 0.125.
float plain_value(uint type, uint word, uint i) {
    if (KV_FAMILY(type) == KV_F32) return uintBitsToFloat(word);
    const uint half_word = (i & 1) == 0 ? word & 0xffffu : word >> 16;
    return KV_FAMILY(type) == KV_BF16 ? uintBitsToFloat(half_word << 16) : unpackHalf2x16(half_word).x;
}

#ifdef TEXEL // lanes read shared memory one by one
void prepare_levels() {}
float level_of(uint type, uint code) { return code_level(type, code); }
#else
const uint key_levels = TABLE_LEVELS(k_type), all_levels = key_levels + (v_type == k_type ? 0 : TABLE_LEVELS(v_type));
shared float level_table[all_levels == 0 ? 1 : all_levels]; // of keys, then of values
void prepare_levels() {
    for (uint i = gl_LocalInvocationID.x; i < all_levels; i += lanes)
        level_table[i] = i < key_levels ? code_level(k_type, i) : code_level(v_type, i - key_levels);
}
float level_of(uint type, uint code) {
    if (TABLE_LEVELS(type) == 0) return code_level(type, code);
    const uint bits = KV_UNEQUAL(type) != 0 ? 7 : KV_TRELLIS(type) != 0 ? 5 : KV_BITS(type);
    return level_table[(type == k_type ? 0 : key_levels) + (code & ((1u << bits) - 1u))];
}
#endif

// Rotates a word so that bit `at` becomes bit 0, the bits below it the highest.
uint turned(uint word, uint at) { return word >> at | (word << 1) << (31 - at); }

// v[0 .. n - 1] = channels [c, c + n) of vector `at`; n <= 8, c a multiple of n.
void load_channels(uint type, uint codes, uint scales, uint at, uint c, uint n, out float v[8]) {
    const uint base = codes + at * KV_WORDS(type, head_dim);
    if (!KV_IS_CODED(type) && n == 8) { // 16 bytes at a time
        const uint loads = KV_FAMILY(type) == KV_F32 ? 2 : 1;
        const uvec4 first = cache(base / 4 + c / 8 * loads), second = loads == 2 ? cache(base / 4 + c / 4 + 1) : uvec4(0);
        for (uint i = 0; i < 8; i++) v[i] = plain_value(type, loads == 1 ? first[i / 2] : i < 4 ? first[i] : second[i - 4], i);
        return;
    }
    if (!KV_IS_CODED(type)) {
        for (uint i = 0; i < n; i++)
            v[i] = plain_value(type, cache_word(base + (KV_FAMILY(type) == KV_F32 ? c + i : (c + i) / 2)), c + i);
        return;
    }
    if (is_nibble_trellis(type)) {
        const uvec4 run = cache(base / 4 + c / 32);
        const uvec2 nibbles = trellis_nibbles(run[c / 8 & 3], run[(c / 8 + 3) & 3]);
        for (uint i = 0; i < n; i++) v[i] = level_of(type, nibble_index(nibbles, c + i));
        return;
    }
    const uint low = KV_LOW_BITS(KV_BITS(type)), high = KV_BITS(type) - low;
    const uint before = KV_TRELLIS(type) != 0 ? 2 : 0; // bits of the trellis' plane before a channel's own
    const uint before_low = high == 0 ? before : 0;
    const uint low_word = turned(cache_word(base + c * low / 32), (c * low - before_low) & 31);
    const uint next_word = low == 8 && n > 4 ? cache_word(base + c / 4 + 1) : 0;
    const uint high_word =
        high == 0 ? 0 : turned(cache_word(base + (head_dim * low + c * high) / 32), (c * high - before) & 31);
    const float by = block_scale(type, scales, at, c);
    for (uint i = 0; i < n; i++) {
        const uint part = low == 8 && i >= 4 ? next_word >> (8 * (i & 3)) : low_word >> (low * i);
        const uint high_code = high == 0 ? 0 : (high_word >> (high * i)) & ((1u << (high + before)) - 1u);
        const uint code = (part & ((1u << (low + before_low)) - 1u)) | high_code << low;
        v[i] = level_of(type, code);
        if (KV_FAMILY(type) == KV_BLOCKS) v[i] *= by;
    }
}

// The codes of 32 channels, by planes; for tq4t the words of trellis_nibbles().
struct CodeBlock { uint low[8]; uint high[4]; };

CodeBlock load_block(uint type, uint base, uint b) {
    const uint low = KV_LOW_BITS(KV_BITS(type)), high = KV_BITS(type) - low;
    CodeBlock block;
    if (low >= 4 && KV_WORDS(type, head_dim) % 4 == 0) { // vectors begin at 16 bytes
        for (uint i = 0; i < low / 4; i++) {
            const uvec4 w = cache(base / 4 + b * (low / 4) + i);
            for (uint j = 0; j < 4; j++) block.low[4 * i + j] = w[j];
        }
    } else {
        for (uint i = 0; i < low; i++) block.low[i] = cache_word(base + b * low + i);
    }
    for (uint i = 0; i < high; i++) block.high[i] = cache_word(base + head_dim * low / 32 + b * high + i);
    if (is_nibble_trellis(type)) {
        uint before = block.low[3];
        for (uint i = 0; i < 4; i++) {
            const uint word = block.low[i];
            const uvec2 nibbles = trellis_nibbles(word, before);
            block.low[i] = nibbles.x;
            block.high[i] = nibbles.y;
            before = word;
        }
    }
    return block;
}

uint block_code(uint type, CodeBlock block, uint k) {
    const uint low = KV_LOW_BITS(KV_BITS(type)), high = KV_BITS(type) - low;
    if (is_nibble_trellis(type)) return nibble_index(uvec2(block.low[k / 8], block.high[k / 8]), k);
    return code_of_words(type, block.low[k * low / 32], high == 0 ? 0 : block.high[k * high / 32], k);
}

#ifndef UNROLL // [[unroll]] in kernels whose loops must be unrolled
#define UNROLL
#endif

// v = channels [32 b, 32 b + 32) of vector `at`
void load32(uint type, uint codes, uint scales, uint at, uint b, out vec4 v[8]) {
    const uint base = codes + at * KV_WORDS(type, head_dim);
    if (KV_FAMILY(type) == KV_F32) {
        for (uint i = 0; i < 8; i++) v[i] = uintBitsToFloat(cache(base / 4 + b * 8 + i));
        return;
    }
    if (!KV_IS_CODED(type)) {
        for (uint i = 0; i < 4; i++) {
            const uvec4 w = cache(base / 4 + b * 4 + i);
            for (uint j = 0; j < 8; j++) v[2 * i + j / 4][j & 3] = plain_value(type, w[j / 2], j);
        }
        return;
    }
    const CodeBlock block = load_block(type, base, b);
    const float by = block_scale(type, scales, at, 32 * b);
    UNROLL for (uint i = 0; i < 8; i++)
        UNROLL for (uint j = 0; j < 4; j++) {
            const uint code = block_code(type, block, 4 * i + j);
            v[i][j] = level_of(type, code);
            if (KV_FAMILY(type) == KV_BLOCKS) v[i][j] *= by;
        }
}
