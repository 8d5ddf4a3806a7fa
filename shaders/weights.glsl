// Weight formats in device memory (model/gpu/device_layout.h): rows of 16-byte words, `interleave` of them interleaved word by word,
// decoded 32 weights at a time, with the bits of each block in the order of model/formats/device_blocks.h. FORMAT_<name> chooses one:
// row_vectors(cols) is the uvec4s of a row, load32(row_start, header, s, j) returns weights 256 s + 32 j ... of it. Where weights 256 s
// ... have scales in common, header_at(cols, s, k) are the HEADER_VECTORS vectors with these. All invocations of a workgroup call
// prepare_weights() first.
#include "read.glsl"
#include "tables.h"

READ_VECTORS(WEIGHTS_BINDING, weights)

// Vector number i of the row that starts at `row`, its word c, and its words 2 half and 2 half + 1.
uvec4 vector_at(uint row, uint i) { return weights(row + interleave * i); }
#ifdef TEXEL
uint word_at(uint row, uint i, uint c) { return vector_at(row, i)[c]; }
uvec2 pair_at(uint row, uint i, uint half_of_it) {
    const uvec4 v = vector_at(row, i);
    return half_of_it == 0 ? v.xy : v.zw;
}
struct Header { uint cols; uvec4 v[3]; }; // an invocation has 256 weights, and loads their header once
#else
layout(binding = WEIGHTS_BINDING) readonly buffer WeightWords { uint weight_words[]; };
layout(binding = WEIGHTS_BINDING) readonly buffer WeightPairs { uvec2 weight_pairs[]; };
uint word_at(uint row, uint i, uint c) { return weight_words[(row + interleave * i) * 4 + c]; }
uvec2 pair_at(uint row, uint i, uint half_of_it) { return weight_pairs[(row + interleave * i) * 2 + half_of_it]; }
struct Header { uint cols; }; // an invocation has 32 weights, and loads what it needs for these
#endif
uint header_at(uint cols, uint s, uint k);
uvec4 header_vector(uint row, Header h, uint s, uint k);
uint header_word(uint row, Header h, uint s, uint k, uint c);
uvec2 header_pair(uint row, Header h, uint s, uint k, uint half_of_it);

uint row_vectors(uint cols);
uint row_start(uint row, uint cols) { return row / interleave * interleave * row_vectors(cols) + row % interleave; }

vec4 bytes(uint v) { return vec4(v & 0xff, (v >> 8) & 0xff, (v >> 16) & 0xff, v >> 24); }
vec4 signed_bytes(uint v) {
    const int s = int(v);
    return vec4(s << 24 >> 24, s << 16 >> 24, s << 8 >> 24, s >> 24);
}
// Returns the fp16 scale in half i % 2 of a word, or both; they are stored 1 / p.scale_unit times as large (device_layout.h).
float block_scale(uint word, uint i) { return p.scale_unit * unpackHalf2x16(word >> (16 * (i & 1))).x; }
vec2 block_scales(uint word) { return p.scale_unit * unpackHalf2x16(word); }

// Weight i is scale[i / 16] * level[i / 4][i % 4] - offset[i / 16]. SPLIT_SCALES: the two scales differ; HAVE_OFFSETS: any is not 0.
struct Weights32 { vec4 level[8]; vec2 scale, offset; };
Weights32 scaled(float scale) {
    Weights32 w;
    w.scale = vec2(scale);
    w.offset = vec2(0.0);
    return w;
}
Weights32 unscaled() { return scaled(1.0); }
// Where a level of `zero` stands for 0.
Weights32 scaled_from(vec2 scale, float zero) {
    Weights32 w;
    w.scale = scale;
    w.offset = scale * zero;
    return w;
}

// Returns four nibbles of weights 4 k ..., each in a byte.
uint nibbles_of(uvec4 v, uint k) { return (k < 4 ? v[k] : v[k - 4] >> 4) & 0x0f0f0f0fu; }
// Returns the pairs of bits, or the single bits, of weights 4 k ..., at bit `to` of each byte.
uint moved(uint v, int left) { return left >= 0 ? v << left : v >> -left; }
uint pairs_of(uvec2 pairs, uint k, uint to) { return moved(pairs[k / 4], int(to) - int(2 * (k % 4))) & (0x03030303u << to); }
uint bits_of(uint bits, uint k, uint to) { return moved(bits, int(to) - int(k)) & (0x01010101u << to); }

void load_nibbles(uvec4 v, out vec4 w[8]) {
    [[unroll]] for (uint k = 0; k < 8; k++) w[k] = bytes(nibbles_of(v, k));
}
// Loads nibbles with `bits` as fifth bits.
void load_5_bits(uvec4 v, uint bits, out vec4 w[8]) {
    [[unroll]] for (uint k = 0; k < 8; k++) w[k] = bytes(nibbles_of(v, k) | bits_of(bits, k, 4));
}

#if defined(FORMAT_iq4_nl) || defined(FORMAT_iq4_xs) || defined(FORMAT_mxfp4)
shared float levels[16]; // drivers put constant arrays into slow memory
void prepare_weights() {
    for (uint i = gl_LocalInvocationID.x; i < 16; i += workgroup) {
#ifdef FORMAT_mxfp4
        const uint low = i < 4 ? MXFP4_LEVELS_0 : MXFP4_LEVELS_1, high = i < 12 ? MXFP4_LEVELS_2 : MXFP4_LEVELS_3;
#else
        const uint low = i < 4 ? IQ4_LEVELS_0 : IQ4_LEVELS_1, high = i < 12 ? IQ4_LEVELS_2 : IQ4_LEVELS_3;
#endif
        levels[i] = signed_bytes(i < 8 ? low : high)[i & 3];
    }
    barrier();
}
vec4 levels_of(uint v) { return vec4(levels[v & 0xff], levels[(v >> 8) & 0xff], levels[(v >> 16) & 0xff], levels[v >> 24]); }
// Loads the levels of 32 nibbles, 0..15 from the low ones of v's bytes, 16..31 from the high ones.
void load_levels(uvec4 v, out vec4 w[8]) {
    [[unroll]] for (uint j = 0; j < 4; j++) {
        w[j] = levels_of(v[j] & 0x0f0f0f0fu);
        w[4 + j] = levels_of((v[j] >> 4) & 0x0f0f0f0fu);
    }
}
#else
void prepare_weights() {}
#endif

#if defined(FORMAT_f32)
uint row_vectors(uint cols) { return cols / 4; }
Weights32 load32(uint row, Header h, uint s, uint j) {
    Weights32 w = unscaled();
    [[unroll]] for (uint i = 0; i < 8; i++) w.level[i] = uintBitsToFloat(vector_at(row, s * 64 + j * 8 + i));
    return w;
}

#elif defined(FORMAT_f16)
uint row_vectors(uint cols) { return cols / 8; }
Weights32 load32(uint row, Header h, uint s, uint j) {
    Weights32 w = unscaled();
    [[unroll]] for (uint i = 0; i < 4; i++) {
        const uvec4 v = vector_at(row, s * 32 + j * 4 + i);
        w.level[2 * i] = vec4(unpackHalf2x16(v.x), unpackHalf2x16(v.y));
        w.level[2 * i + 1] = vec4(unpackHalf2x16(v.z), unpackHalf2x16(v.w));
    }
    return w;
}

#elif defined(FORMAT_bf16)
uint row_vectors(uint cols) { return cols / 8; }
Weights32 load32(uint row, Header h, uint s, uint j) {
    Weights32 w = unscaled();
    [[unroll]] for (uint i = 0; i < 4; i++) {
        const uvec4 v = vector_at(row, s * 32 + j * 4 + i), low = v << 16, high = v & 0xffff0000u;
        w.level[2 * i] = uintBitsToFloat(uvec4(low.x, high.x, low.y, high.y));
        w.level[2 * i + 1] = uintBitsToFloat(uvec4(low.z, high.z, low.w, high.w));
    }
    return w;
}

#elif defined(FORMAT_q8_0) // row: int8 levels, then one fp16 scale per 32
#define HEADER_VECTORS 1
uint row_vectors(uint cols) { return cols / 16 + (cols / 32 + 7) / 8; }
uint header_at(uint cols, uint s, uint k) { return cols / 16 + s; }
Weights32 load32(uint row, Header h, uint s, uint j) {
    Weights32 w = scaled(block_scale(header_word(row, h, s, 0, j >> 1), j));
    [[unroll]] for (uint i = 0; i < 2; i++) {
        const uvec4 v = vector_at(row, s * 16 + j * 2 + i);
        [[unroll]] for (uint k = 0; k < 4; k++) w.level[4 * i + k] = signed_bytes(v[k]);
    }
    return w;
}

#elif defined(FORMAT_q4_0) // row: nibbles, then one fp16 scale per 32
#define HAVE_OFFSETS
#define HEADER_VECTORS 1
uint row_vectors(uint cols) { return cols / 32 + (cols / 32 + 7) / 8; }
uint header_at(uint cols, uint s, uint k) { return cols / 32 + s; }
Weights32 load32(uint row, Header h, uint s, uint j) {
    Weights32 w = scaled_from(vec2(block_scale(header_word(row, h, s, 0, j >> 1), j)), 8.0);
    load_nibbles(vector_at(row, s * 8 + j), w.level);
    return w;
}

#elif defined(FORMAT_q4_1) // row: nibbles, then one fp16 scale and minimum per 32
#define HAVE_OFFSETS
uint row_vectors(uint cols) { return cols / 32 + (cols / 32 + 3) / 4; }
Weights32 load32(uint row, Header h, uint s, uint j) {
    const vec2 d = block_scales(word_at(row, h.cols / 32 + s * 2 + j / 4, j & 3));
    Weights32 w = scaled(d.x);
    w.offset = vec2(-d.y);
    load_nibbles(vector_at(row, s * 8 + j), w.level);
    return w;
}

#elif defined(FORMAT_q5_0) // row: nibbles, then 32 fifth bits per 32, then one fp16 scale
#define HAVE_OFFSETS
#define HEADER_VECTORS 1
uint row_vectors(uint cols) { return cols / 32 + (cols / 32 + 3) / 4 + (cols / 32 + 7) / 8; }
uint header_at(uint cols, uint s, uint k) { return cols / 32 + (cols / 32 + 3) / 4 + s; }
Weights32 load32(uint row, Header h, uint s, uint j) {
    Weights32 w = scaled_from(vec2(block_scale(header_word(row, h, s, 0, j >> 1), j)), 16.0);
    load_5_bits(vector_at(row, s * 8 + j), word_at(row, h.cols / 32 + s * 2 + j / 4, j & 3), w.level);
    return w;
}

#elif defined(FORMAT_q5_1) // row: nibbles, then per 32 one fp16 scale and minimum and 32 fifth bits
#define HAVE_OFFSETS
uint row_vectors(uint cols) { return cols / 32 + (cols / 32 + 1) / 2; }
Weights32 load32(uint row, Header h, uint s, uint j) {
    const uvec2 header = pair_at(row, h.cols / 32 + s * 4 + j / 2, j & 1);
    const vec2 d = block_scales(header.x);
    Weights32 w = scaled(d.x);
    w.offset = vec2(-d.y);
    load_5_bits(vector_at(row, s * 8 + j), header.y, w.level);
    return w;
}

#elif defined(FORMAT_iq4_nl) // row: nibbles, then one fp16 scale per 32
#define HEADER_VECTORS 1
uint row_vectors(uint cols) { return cols / 32 + (cols / 32 + 7) / 8; }
uint header_at(uint cols, uint s, uint k) { return cols / 32 + s; }
Weights32 load32(uint row, Header h, uint s, uint j) {
    Weights32 w = scaled(block_scale(header_word(row, h, s, 0, j >> 1), j));
    load_levels(vector_at(row, s * 8 + j), w.level);
    return w;
}

#elif defined(FORMAT_mxfp4) // row: nibbles, then one exponent byte per 32
#define HEADER_VECTORS 1
uint row_vectors(uint cols) { return cols / 32 + (cols / 32 + 15) / 16; }
uint header_at(uint cols, uint s, uint k) { return cols / 32 + s / 2; }
Weights32 load32(uint row, Header h, uint s, uint j) {
    const uint e = (header_word(row, h, s, 0, 2 * (s & 1) + j / 4) >> (8 * (j & 3))) & 0xff;
    // 2^(e - 128), as levels are doubled; the NaN e = 255 was refused when the file was read
    Weights32 w = scaled(uintBitsToFloat(e < 2 ? 0x00200000u << e : (e - 1) << 23));
    load_levels(vector_at(row, s * 8 + j), w.level);
    return w;
}

#elif defined(FORMAT_q2_k) // row: blocks of (1 vector of scales and minima, 4 of bit pairs), then fp16 d and dmin per block
#define HAVE_OFFSETS
#define SPLIT_SCALES
#define HEADER_VECTORS 2
uint row_vectors(uint cols) { return cols / 256 * 5 + (cols / 256 + 3) / 4; }
uint header_at(uint cols, uint s, uint k) { return k == 0 ? s * 5 : cols / 256 * 5 + s / 4; }
Weights32 load32(uint row, Header h, uint s, uint j) {
    const vec2 d = block_scales(header_word(row, h, s, 1, s & 3));
    const uint scales = header_word(row, h, s, 0, j >> 1) >> (16 * (j & 1));
    Weights32 w;
    w.scale = d.x * vec2(scales & 15, (scales >> 8) & 15);
    w.offset = d.y * vec2((scales >> 4) & 15, (scales >> 12) & 15);
    const uvec2 pairs = pair_at(row, s * 5 + 1 + j / 2, j & 1);
    [[unroll]] for (uint k = 0; k < 8; k++) w.level[k] = bytes(pairs_of(pairs, k, 0));
    return w;
}

#elif defined(FORMAT_q3_k) // row: blocks of (2 vectors of third bits, 4 of bit pairs), 3 words of scales each, one fp16 d each
#define HAVE_OFFSETS
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
Weights32 load32(uint row, Header h, uint s, uint j) {
    const float d = block_scale(header_word(row, h, s, 2, (s & 7) >> 1), s);
    // 6-bit scales 2 j and 2 j + 1: nibbles of the first two words, pairs of bits of the third
    const uint low = scale_word(row, h, s, j >> 2) >> (8 * (j & 3)), high = scale_word(row, h, s, 2) >> (4 * j);
    const vec2 scales = vec2((low & 15) | (high & 3) << 4, ((low >> 4) & 15) | (high & 12) << 2);
    Weights32 w = scaled_from(d * (scales - 32.0), 4.0);
    const uint third = word_at(row, s * 6 + j / 4, j & 3);
    const uvec2 pairs = pair_at(row, s * 6 + 2 + j / 2, j & 1);
    [[unroll]] for (uint k = 0; k < 8; k++) w.level[k] = bytes(pairs_of(pairs, k, 0) | bits_of(third, k, 2));
    return w;
}

#elif defined(FORMAT_iq4_xs) // row: blocks of 8 vectors of nibbles, then 8 bytes of scales per block
#define HEADER_VECTORS 1
uint row_vectors(uint cols) { return cols / 32 + (cols / 256 + 1) / 2; }
uint header_at(uint cols, uint s, uint k) { return cols / 32 + s / 2; }
Weights32 load32(uint row, Header h, uint s, uint j) {
    const uvec2 header = header_pair(row, h, s, 0, s & 1); // d and high bit pairs; low nibbles
    const uint scale = ((header.y >> (4 * j)) & 15) | ((header.x >> (16 + 2 * j)) & 3) << 4;
    Weights32 w = scaled(block_scale(header.x, 0) * (float(scale) - 32.0));
    load_levels(vector_at(row, s * 8 + j), w.level);
    return w;
}

#elif defined(FORMAT_q4_k) || defined(FORMAT_q5_k) // row: blocks of (1 vector of scales, with Q5_K 2 of fifth bits, 8 of nibbles)
#define HAVE_OFFSETS
#define HEADER_VECTORS 1
#ifdef FORMAT_q5_k
const uint block_vectors = 11;
#else
const uint block_vectors = 9;
#endif
uint row_vectors(uint cols) { return cols / 256 * block_vectors; }
uint header_at(uint cols, uint s, uint k) { return s * block_vectors; }
Weights32 load32(uint row, Header h, uint s, uint j) {
    const uvec4 header = header_vector(row, h, s, 0);
    const uint high = header.w >> (2 * j), scale = ((header.y >> (4 * j)) & 15) | (high & 3) << 4,
               minimum = ((header.z >> (4 * j)) & 15) | ((high >> 16) & 3) << 4;
    const vec2 d = block_scales(header.x);
    Weights32 w = scaled(d.x * float(scale));
    w.offset = vec2(d.y * float(minimum));
    const uvec4 nibbles = vector_at(row, s * block_vectors + (block_vectors - 8) + j);
#ifdef FORMAT_q5_k
    load_5_bits(nibbles, word_at(row, s * block_vectors + 1 + j / 4, j & 3), w.level);
#else
    load_nibbles(nibbles, w.level);
#endif
    return w;
}

#elif defined(FORMAT_q6_k) // row: blocks of (8 vectors of low nibbles, 4 of high bit pairs, 16 int8 scales), then one fp16 d per block
#define HAVE_OFFSETS
#define SPLIT_SCALES
#define HEADER_VECTORS 2
uint row_vectors(uint cols) { return cols / 256 * 13 + (cols / 256 + 7) / 8; }
uint header_at(uint cols, uint s, uint k) { return k == 0 ? s * 13 + 12 : cols / 256 * 13 + s / 8; }
Weights32 load32(uint row, Header h, uint s, uint j) {
    const float d = block_scale(header_word(row, h, s, 1, (s & 7) >> 1), s);
    const vec2 scales = signed_bytes(header_word(row, h, s, 0, j >> 1) >> (16 * (j & 1))).xy;
    Weights32 w = scaled_from(d * scales, 32.0);
    const uvec4 low = vector_at(row, s * 13 + j);
    const uvec2 pairs = pair_at(row, s * 13 + 8 + j / 2, j & 1);
    [[unroll]] for (uint k = 0; k < 8; k++) w.level[k] = bytes(nibbles_of(low, k) | pairs_of(pairs, k, 4));
    return w;
}
#endif

#ifdef TEXEL
Header load_header(uint row, uint cols, uint s) {
    Header h;
    h.cols = cols;
#ifdef HEADER_VECTORS
    [[unroll]] for (uint k = 0; k < HEADER_VECTORS; k++) h.v[k] = vector_at(row, header_at(cols, s, k));
#endif
    return h;
}
uvec4 header_vector(uint row, Header h, uint s, uint k) { return h.v[k]; }
uint header_word(uint row, Header h, uint s, uint k, uint c) { return h.v[k][c]; }
uvec2 header_pair(uint row, Header h, uint s, uint k, uint half_of_it) { return half_of_it == 0 ? h.v[k].xy : h.v[k].zw; }
#else
Header load_header(uint row, uint cols, uint s) { return Header(cols); }
#ifdef HEADER_VECTORS
uvec4 header_vector(uint row, Header h, uint s, uint k) { return vector_at(row, header_at(h.cols, s, k)); }
uint header_word(uint row, Header h, uint s, uint k, uint c) { return word_at(row, header_at(h.cols, s, k), c); }
uvec2 header_pair(uint row, Header h, uint s, uint k, uint half_of_it) { return pair_at(row, header_at(h.cols, s, k), half_of_it); }
#endif
#endif

// Returns weights 4 i ... of w.
vec4 weights4(Weights32 w, uint i) {
#ifdef HAVE_OFFSETS
    return w.scale[i / 4] * w.level[i] - w.offset[i / 4];
#else
    return w.scale[i / 4] * w.level[i];
#endif
}

float sum_of(vec4 v) { return (v.x + v.y) + (v.z + v.w); }

// Returns the sums of x's halves, where dot32 needs them.
vec2 sums_of(vec4 x[8]) {
#ifdef HAVE_OFFSETS
    return vec2(sum_of((x[0] + x[1]) + (x[2] + x[3])), sum_of((x[4] + x[5]) + (x[6] + x[7])));
#else
    return vec2(0.0);
#endif
}

// Returns w . x, x_sums = sums_of(x).
float dot32(Weights32 w, vec4 x[8], vec2 x_sums) {
    vec4 low = w.level[0] * x[0], high = w.level[4] * x[4];
    [[unroll]] for (uint i = 1; i < 4; i++) {
        low += w.level[i] * x[i];
        high += w.level[4 + i] * x[4 + i];
    }
#ifdef SPLIT_SCALES
    float sum = w.scale.x * sum_of(low) + w.scale.y * sum_of(high);
#else
    float sum = w.scale.x * sum_of(low + high);
#endif
#ifdef HAVE_OFFSETS
    sum -= w.offset.x * x_sums.x + w.offset.y * x_sums.y;
#endif
    return sum;
}
