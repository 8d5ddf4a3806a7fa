// The weight formats of weights.glsl; a kernel is compiled for one of them. s is the number of a 256-weight group in a row, j of
// a 32-weight group in it, k of four weights in these 32 (in header_at: of a vector of the header). A weight is scale * level -
// offset. Work is split at the loads a kernel waits for: fetch32 only loads (Raw32), and decode32 only computes, so that loads of
// several rows can be in flight. decode32 is common to all quantised formats. Each format's #elif says how a row lies in memory:
// levels first, or blocks with their scales. If 256 weights share a header, header_at says where it is; a kernel with texel
// buffers loads it once (Header), others word by word.

// Returns four nibbles of weights 4 k ..., each in a byte.
uint nibbles_of(uvec4 v, uint k) { return (k < 4 ? v[k] : v[k - 4] >> 4) & 0x0f0f0f0fu; }
// Returns the pairs of bits, or the single bits, of weights 4 k ..., at bit `to` of each byte.
uint moved(uint v, int left) { return left >= 0 ? v << left : v >> -left; }
uint pairs_of(uvec2 pairs, uint k, uint to) { return moved(pairs[k / 4], int(to) - int(2 * (k % 4))) & (0x03030303u << to); }
uint bits_of(uint bits, uint k, uint to) { return moved(bits, int(to) - int(k)) & (0x01010101u << to); }

#if defined(FORMAT_iq4_nl) || defined(FORMAT_iq4_xs) || defined(FORMAT_mxfp4) || defined(FORMAT_nvfp4)
#define LEVEL_TABLE
shared float levels[16]; // drivers put constant arrays into slow memory
void prepare_weights() {
    for (uint i = gl_LocalInvocationID.x; i < 16; i += workgroup) {
#if defined(FORMAT_mxfp4) || defined(FORMAT_nvfp4)
        const uint low = i < 4 ? MXFP4_LEVELS_0 : MXFP4_LEVELS_1, high = i < 12 ? MXFP4_LEVELS_2 : MXFP4_LEVELS_3;
#else
        const uint low = i < 4 ? IQ4_LEVELS_0 : IQ4_LEVELS_1, high = i < 12 ? IQ4_LEVELS_2 : IQ4_LEVELS_3;
#endif
        levels[i] = signed_bytes(i < 8 ? low : high)[i & 3];
    }
    barrier();
}
// Returns the levels whose numbers are the bytes of v.
vec4 levels_of(uint v) { return vec4(levels[v & 0xff], levels[(v >> 8) & 0xff], levels[(v >> 16) & 0xff], levels[v >> 24]); }
#elif defined(FORMAT_q8_0)
void prepare_weights() {}
vec4 levels_of(uint v) { return signed_bytes(v); }
#elif GRID_ENTRIES == 0
void prepare_weights() {}
vec4 levels_of(uint v) { return bytes(v); }
#endif

// A format defines RAW_VECTORS and RAW_WORDS, the size of 32 weights in memory. If weights are quantised, scales32 returns their
// scales, and codes4 the bytes from which levels_of makes the levels of weights 4 k .... ZERO: the level that stands for 0;
// HAVE_MINIMUMS: the format has minimums instead.
#if defined(FORMAT_f32)
#define RAW_VECTORS 8
#elif defined(FORMAT_f16) || defined(FORMAT_bf16)
#define RAW_VECTORS 4
#elif defined(FORMAT_q8_0) || defined(FORMAT_q4_k) || defined(FORMAT_q5_k)
#define RAW_VECTORS 2
#elif !defined(FORMAT_q2_k) && !defined(FORMAT_q3_k) && !defined(FORMAT_tq2_0) && !defined(FORMAT_q2_0) && GRID_ENTRIES == 0
#define RAW_VECTORS 1
#endif
#if defined(FORMAT_q3_k)
#define RAW_WORDS 6
#elif defined(FORMAT_q2_k) || defined(FORMAT_q6_k)
#define RAW_WORDS 4
#elif defined(FORMAT_tq2_0) || defined(FORMAT_q2_0)
#define RAW_WORDS 3
#elif defined(FORMAT_q5_0) || defined(FORMAT_q5_1) || defined(FORMAT_iq4_xs) || defined(FORMAT_nvfp4)
#define RAW_WORDS 2
#elif GRID_ENTRIES == 0
#define RAW_WORDS 1 // not used if the format has none
#endif
struct Raw32 {
#ifdef RAW_VECTORS
    uvec4 v[RAW_VECTORS];
#endif
    uint w[RAW_WORDS];
};
// Fetches the first two words of `raw`.
#define FETCH_PAIR(name, pair) const uvec2 name = (pair); raw.w[0] = (name).x; raw.w[1] = (name).y

// Fetches the levels of 32 weights, if a row begins with its levels.
Raw32 fetch_levels(uint row, uint s, uint j) {
    Raw32 raw;
#ifdef RAW_VECTORS
    [[unroll]] for (uint i = 0; i < RAW_VECTORS; i++) raw.v[i] = vector_at(row, (s * 8 + j) * RAW_VECTORS + i);
#endif
    return raw;
}

#if defined(FORMAT_f32)
uint row_vectors(uint cols) { return cols / 4; }
Raw32 fetch32(uint row, Header h, uint s, uint j) { return fetch_levels(row, s, j); }
Weights32 decode32(Raw32 raw, uint s, uint j) {
    Weights32 w = unscaled();
    [[unroll]] for (uint i = 0; i < 8; i++) w.level[i] = uintBitsToFloat(raw.v[i]);
    return w;
}

#elif defined(FORMAT_f16) || defined(FORMAT_bf16)
uint row_vectors(uint cols) { return cols / 8; }
Raw32 fetch32(uint row, Header h, uint s, uint j) { return fetch_levels(row, s, j); }
Weights32 decode32(Raw32 raw, uint s, uint j) {
    Weights32 w = unscaled();
    [[unroll]] for (uint i = 0; i < 4; i++) {
#ifdef FORMAT_f16
        w.level[2 * i] = vec4(unpackHalf2x16(raw.v[i].x), unpackHalf2x16(raw.v[i].y));
        w.level[2 * i + 1] = vec4(unpackHalf2x16(raw.v[i].z), unpackHalf2x16(raw.v[i].w));
#else
        const uvec4 low = raw.v[i] << 16, high = raw.v[i] & 0xffff0000u;
        w.level[2 * i] = uintBitsToFloat(uvec4(low.x, high.x, low.y, high.y));
        w.level[2 * i + 1] = uintBitsToFloat(uvec4(low.z, high.z, low.w, high.w));
#endif
    }
    return w;
}

#else
#define QUANTISED
#endif

#if defined(FORMAT_q8_0) // row: int8 levels, then one fp16 scale per 32
#define HEADER_VECTORS 1
uint row_vectors(uint cols) { return cols / 16 + (cols / 32 + 7) / 8; }
uint header_at(uint cols, uint s, uint k) { return cols / 16 + s; }
Raw32 fetch32(uint row, Header h, uint s, uint j) {
    Raw32 raw = fetch_levels(row, s, j);
    raw.w[0] = header_word(row, h, s, 0, j >> 1);
    return raw;
}
uint codes4(Raw32 raw, uint k) { return raw.v[k / 4][k % 4]; }
Scales32 scales32(Raw32 raw, uint s, uint j) { return scaled(block_scale(raw.w[0], j)); }

#elif defined(FORMAT_q4_0) || defined(FORMAT_iq4_nl) // row: nibbles, then one fp16 scale per 32
#ifdef FORMAT_q4_0
#define ZERO 8
#endif
#define HEADER_VECTORS 1
uint row_vectors(uint cols) { return cols / 32 + (cols / 32 + 7) / 8; }
uint header_at(uint cols, uint s, uint k) { return cols / 32 + s; }
Raw32 fetch32(uint row, Header h, uint s, uint j) {
    Raw32 raw = fetch_levels(row, s, j);
    raw.w[0] = header_word(row, h, s, 0, j >> 1);
    return raw;
}
uint codes4(Raw32 raw, uint k) { return nibbles_of(raw.v[0], k); }
Scales32 scales32(Raw32 raw, uint s, uint j) { return scaled(block_scale(raw.w[0], j)); }

#elif defined(FORMAT_q4_1) // row: nibbles, then one fp16 scale and minimum per 32
#define HAVE_MINIMUMS
uint row_vectors(uint cols) { return cols / 32 + (cols / 32 + 3) / 4; }
Raw32 fetch32(uint row, Header h, uint s, uint j) {
    Raw32 raw = fetch_levels(row, s, j);
    raw.w[0] = word_at(row, h.cols / 32 + s * 2 + j / 4, j & 3);
    return raw;
}
uint codes4(Raw32 raw, uint k) { return nibbles_of(raw.v[0], k); }
Scales32 scales32(Raw32 raw, uint s, uint j) {
    const vec2 d = block_scales(raw.w[0]);
    return Scales32(d.xx, -d.yy);
}

#elif defined(FORMAT_q5_0) // row: nibbles, then 32 fifth bits per 32, then one fp16 scale
#define ZERO 16
#define HEADER_VECTORS 1
uint row_vectors(uint cols) { return cols / 32 + (cols / 32 + 3) / 4 + (cols / 32 + 7) / 8; }
uint header_at(uint cols, uint s, uint k) { return cols / 32 + (cols / 32 + 3) / 4 + s; }
Raw32 fetch32(uint row, Header h, uint s, uint j) {
    Raw32 raw = fetch_levels(row, s, j);
    raw.w[0] = header_word(row, h, s, 0, j >> 1);
    raw.w[1] = word_at(row, h.cols / 32 + s * 2 + j / 4, j & 3);
    return raw;
}
uint codes4(Raw32 raw, uint k) { return nibbles_of(raw.v[0], k) | bits_of(raw.w[1], k, 4); }
Scales32 scales32(Raw32 raw, uint s, uint j) { return scaled(block_scale(raw.w[0], j)); }

#elif defined(FORMAT_q5_1) // row: nibbles, then per 32 one fp16 scale and minimum and 32 fifth bits
#define HAVE_MINIMUMS
uint row_vectors(uint cols) { return cols / 32 + (cols / 32 + 1) / 2; }
Raw32 fetch32(uint row, Header h, uint s, uint j) {
    Raw32 raw = fetch_levels(row, s, j);
    FETCH_PAIR(header, pair_at(row, h.cols / 32 + s * 4 + j / 2, j & 1));
    return raw;
}
uint codes4(Raw32 raw, uint k) { return nibbles_of(raw.v[0], k) | bits_of(raw.w[1], k, 4); }
Scales32 scales32(Raw32 raw, uint s, uint j) {
    const vec2 d = block_scales(raw.w[0]);
    return Scales32(d.xx, -d.yy);
}

#elif defined(FORMAT_mxfp4) // row: nibbles, then one exponent byte per 32
#define HEADER_VECTORS 1
uint row_vectors(uint cols) { return cols / 32 + (cols / 32 + 15) / 16; }
uint header_at(uint cols, uint s, uint k) { return cols / 32 + s / 2; }
Raw32 fetch32(uint row, Header h, uint s, uint j) {
    Raw32 raw = fetch_levels(row, s, j);
    raw.w[0] = header_word(row, h, s, 0, 2 * (s & 1) + j / 4);
    return raw;
}
uint codes4(Raw32 raw, uint k) { return nibbles_of(raw.v[0], k); }
Scales32 scales32(Raw32 raw, uint s, uint j) {
    const uint e = (raw.w[0] >> (8 * (j & 3))) & 0xff;
    // 2^(e - 128), as levels are doubled; the NaN e = 255 was refused when the file was read
    return scaled(uintBitsToFloat(e < 2 ? 0x00200000u << e : (e - 1) << 23));
}

#elif defined(FORMAT_nvfp4) // row: nibbles, then one byte of scale per 16, then what all weights are multiplied by
#define SPLIT_SCALES
#define HEADER_VECTORS 2
uint row_vectors(uint cols) { return cols / 32 + (cols / 64 + 3) / 4 + 1; }
uint header_at(uint cols, uint s, uint k) { return k == 0 ? cols / 32 + s : row_vectors(cols) - 1; }
Raw32 fetch32(uint row, Header h, uint s, uint j) {
    Raw32 raw = fetch_levels(row, s, j);
    raw.w[0] = header_word(row, h, s, 0, j >> 1);
    raw.w[1] = header_word(row, h, s, 1, 0);
    return raw;
}
uint codes4(Raw32 raw, uint k) { return nibbles_of(raw.v[0], k); }
// Returns half of a number with four bits of exponent and three of fraction, as levels are doubled; of 127 it is 0.
float scale_of(uint bits) {
    const uint number = bits & 0x7fu;
    const float normal = uintBitsToFloat((number << 20) + (119u << 23));
    return (bits & 0xffu) == 0x7fu ? 0.0 : number < 8 ? float(number) / 1024.0 : normal;
}
Scales32 scales32(Raw32 raw, uint s, uint j) {
    const uint both = raw.w[0] >> (16 * (j & 1));
    return scaled(uintBitsToFloat(raw.w[1]) * vec2(scale_of(both), scale_of(both >> 8)));
}

#elif defined(FORMAT_q2_k) // row: blocks of (1 vector of scales and minima, 4 of bit pairs), then fp16 d and dmin per block
#define HAVE_MINIMUMS
#define SPLIT_SCALES
#define HEADER_VECTORS 2
uint row_vectors(uint cols) { return cols / 256 * 5 + (cols / 256 + 3) / 4; }
uint header_at(uint cols, uint s, uint k) { return k == 0 ? s * 5 : cols / 256 * 5 + s / 4; }
Raw32 fetch32(uint row, Header h, uint s, uint j) {
    Raw32 raw;
    FETCH_PAIR(pairs, pair_at(row, s * 5 + 1 + j / 2, j & 1));
    raw.w[2] = header_word(row, h, s, 0, j >> 1);
    raw.w[3] = header_word(row, h, s, 1, s & 3);
    return raw;
}
uint codes4(Raw32 raw, uint k) { return pairs_of(uvec2(raw.w[0], raw.w[1]), k, 0); }
Scales32 scales32(Raw32 raw, uint s, uint j) {
    const vec2 d = block_scales(raw.w[3]);
    const uint scales = raw.w[2] >> (16 * (j & 1));
    return Scales32(d.x * vec2(scales & 15, (scales >> 8) & 15), d.y * vec2((scales >> 4) & 15, (scales >> 12) & 15));
}

#elif defined(FORMAT_q3_k) // row: blocks of (2 vectors of third bits, 4 of bit pairs), 3 words of scales each, one fp16 d each
#define ZERO 4
#define SPLIT_SCALES
#define HEADER_VECTORS 3
uint row_vectors(uint cols) { return cols / 256 * 6 + (cols / 256 * 3 + 3) / 4 + (cols / 256 + 7) / 8; }
uint header_at(uint cols, uint s, uint k) { // the first and the last word of scales, d
    const uint scales = cols / 256 * 6;
    return k == 2 ? scales + (cols / 256 * 3 + 3) / 4 + s / 8 : scales + (s * 3 + 2 * k) / 4;
}
// Returns word i of the three words of scales.
uint scale_word(uint row, Header h, uint s, uint i) {
    const uint at = s * 3 + i;
    return header_word(row, h, s, at / 4 == s * 3 / 4 ? 0 : 1, at & 3);
}
Raw32 fetch32(uint row, Header h, uint s, uint j) {
    Raw32 raw;
    FETCH_PAIR(pairs, pair_at(row, s * 6 + 2 + j / 2, j & 1));
    raw.w[2] = word_at(row, s * 6 + j / 4, j & 3);
    raw.w[3] = header_word(row, h, s, 2, (s & 7) >> 1);
    raw.w[4] = scale_word(row, h, s, j >> 2);
    raw.w[5] = scale_word(row, h, s, 2);
    return raw;
}
uint codes4(Raw32 raw, uint k) { return pairs_of(uvec2(raw.w[0], raw.w[1]), k, 0) | bits_of(raw.w[2], k, 2); }
Scales32 scales32(Raw32 raw, uint s, uint j) {
    const float d = block_scale(raw.w[3], s);
    // 6-bit scales 2 j and 2 j + 1: nibbles of the first two words, pairs of bits of the third
    const uint low = raw.w[4] >> (8 * (j & 3)), high = raw.w[5] >> (4 * j);
    const vec2 scales = vec2((low & 15) | (high & 3) << 4, ((low >> 4) & 15) | (high & 12) << 2);
    return scaled(d * (scales - 32.0));
}

#elif defined(FORMAT_tq2_0) // row: blocks of 4 vectors of bit pairs, then one fp16 d per block
#define ZERO 1
#define HEADER_VECTORS 1
uint row_vectors(uint cols) { return cols / 256 * 4 + (cols / 256 + 7) / 8; }
uint header_at(uint cols, uint s, uint k) { return cols / 256 * 4 + s / 8; }
Raw32 fetch32(uint row, Header h, uint s, uint j) {
    Raw32 raw;
    FETCH_PAIR(pairs, pair_at(row, s * 4 + j / 2, j & 1));
    raw.w[2] = header_word(row, h, s, 0, (s & 7) >> 1);
    return raw;
}
uint codes4(Raw32 raw, uint k) { return pairs_of(uvec2(raw.w[0], raw.w[1]), k, 0); }
Scales32 scales32(Raw32 raw, uint s, uint j) { return scaled(block_scale(raw.w[2], s)); }

#elif defined(FORMAT_q2_0) // row: bit pairs, then one fp16 d per 64
#define ZERO 1
#define HEADER_VECTORS 1
uint row_vectors(uint cols) { return cols / 64 + (cols / 64 + 7) / 8; }
uint header_at(uint cols, uint s, uint k) { return cols / 64 + s / 2; }
Raw32 fetch32(uint row, Header h, uint s, uint j) {
    Raw32 raw;
    FETCH_PAIR(pairs, pair_at(row, s * 4 + j / 2, j & 1));
    raw.w[2] = header_word(row, h, s, 0, (s & 1) * 2 + j / 4);
    return raw;
}
uint codes4(Raw32 raw, uint k) { return pairs_of(uvec2(raw.w[0], raw.w[1]), k, 0); }
Scales32 scales32(Raw32 raw, uint s, uint j) { return scaled(block_scale(raw.w[2], j / 2)); }

#elif defined(FORMAT_iq4_xs) // row: blocks of 8 vectors of nibbles, then 8 bytes of scales per block
#define HEADER_VECTORS 1
uint row_vectors(uint cols) { return cols / 32 + (cols / 256 + 1) / 2; }
uint header_at(uint cols, uint s, uint k) { return cols / 32 + s / 2; }
Raw32 fetch32(uint row, Header h, uint s, uint j) {
    Raw32 raw = fetch_levels(row, s, j);
    FETCH_PAIR(header, header_pair(row, h, s, 0, s & 1)); // d and high bit pairs; low nibbles
    return raw;
}
uint codes4(Raw32 raw, uint k) { return nibbles_of(raw.v[0], k); }
Scales32 scales32(Raw32 raw, uint s, uint j) {
    const uint scale = ((raw.w[1] >> (4 * j)) & 15) | ((raw.w[0] >> (16 + 2 * j)) & 3) << 4;
    return scaled(block_scale(raw.w[0], 0) * (float(scale) - 32.0));
}

#elif defined(FORMAT_q4_k) || defined(FORMAT_q5_k) // row: blocks of (1 vector of scales, with Q5_K 2 of fifth bits, 8 of nibbles)
#define HAVE_MINIMUMS
#define HEADER_VECTORS 1
#ifdef FORMAT_q5_k
const uint block_vectors = 11;
#else
const uint block_vectors = 9;
#endif
uint row_vectors(uint cols) { return cols / 256 * block_vectors; }
uint header_at(uint cols, uint s, uint k) { return s * block_vectors; }
Raw32 fetch32(uint row, Header h, uint s, uint j) {
    Raw32 raw;
    raw.v[0] = header_vector(row, h, s, 0);
    raw.v[1] = vector_at(row, s * block_vectors + (block_vectors - 8) + j);
#ifdef FORMAT_q5_k
    raw.w[0] = word_at(row, s * block_vectors + 1 + j / 4, j & 3);
#endif
    return raw;
}
#ifdef FORMAT_q5_k
uint codes4(Raw32 raw, uint k) { return nibbles_of(raw.v[1], k) | bits_of(raw.w[0], k, 4); }
#else
uint codes4(Raw32 raw, uint k) { return nibbles_of(raw.v[1], k); }
#endif
Scales32 scales32(Raw32 raw, uint s, uint j) {
    const uvec4 header = raw.v[0];
    const uint high = header.w >> (2 * j), scale = ((header.y >> (4 * j)) & 15) | (high & 3) << 4,
               minimum = ((header.z >> (4 * j)) & 15) | ((high >> 16) & 3) << 4;
    const vec2 d = block_scales(header.x);
    return Scales32(vec2(d.x * float(scale)), vec2(d.y * float(minimum)));
}

#elif defined(FORMAT_q6_k) // row: blocks of (8 vectors of low nibbles, 4 of high bit pairs, 16 int8 scales), then one fp16 d each
#define ZERO 32
#define SPLIT_SCALES
#define HEADER_VECTORS 2
uint row_vectors(uint cols) { return cols / 256 * 13 + (cols / 256 + 7) / 8; }
uint header_at(uint cols, uint s, uint k) { return k == 0 ? s * 13 + 12 : cols / 256 * 13 + s / 8; }
Raw32 fetch32(uint row, Header h, uint s, uint j) {
    Raw32 raw;
    FETCH_PAIR(pairs, pair_at(row, s * 13 + 8 + j / 2, j & 1));
    raw.w[2] = header_word(row, h, s, 0, j >> 1);
    raw.w[3] = header_word(row, h, s, 1, (s & 7) >> 1);
    raw.v[0] = vector_at(row, s * 13 + j);
    return raw;
}
uint codes4(Raw32 raw, uint k) { return nibbles_of(raw.v[0], k) | pairs_of(uvec2(raw.w[0], raw.w[1]), k, 4); }
Scales32 scales32(Raw32 raw, uint s, uint j) {
    return scaled(block_scale(raw.w[3], s) * signed_bytes(raw.w[2] >> (16 * (j & 1))).xy);
}
#endif

#if GRID_ENTRIES > 0
#include "weight_formats_grid.glsl"
#endif

#ifdef QUANTISED
Weights32 decode32(Raw32 raw, uint s, uint j) {
    const Scales32 scales = scales32(raw, s, j);
    Weights32 w;
    w.scale = scales.scale;
#ifdef ZERO
    w.offset = scales.scale * float(ZERO);
#else
    w.offset = scales.minimum;
#endif
    [[unroll]] for (uint k = 0; k < 8; k++) w.level[k] = levels_of(codes4(raw, k));
    return w;
}
#endif
