// Weight formats in device memory (model/gpu/device_layout.h): rows of 16-byte words, `interleave` of them interleaved word by
// word, decoded 32 weights at a time. FORMAT_<name> chooses one: row_vectors(cols) is the uvec4s of a row,
// load_header(row_start, cols, s) reads the data that weights 256 s ... of a row have in common, load32(row_start, header, s,
// j) returns weights 256 s + 32 j ... of it. All invocations of a workgroup call prepare_weights() first.
#include "read.glsl"
#include "tables.h"

READ_VECTORS(WEIGHTS_BINDING, weights)

uint byte_of(uvec4 v, uint i) { return (v[i >> 2] >> (8 * (i & 3))) & 0xff; }
vec4 bytes(uint v) { return vec4(v & 0xff, (v >> 8) & 0xff, (v >> 16) & 0xff, v >> 24); }
vec4 signed_bytes(uint v) {
    const int s = int(v);
    return vec4(s << 24 >> 24, s << 16 >> 24, s << 8 >> 24, s >> 24);
}
// Weight i is scale[i / 16] * level[i / 4][i % 4] - offset[i / 16]. SPLIT_SCALES: the two scales differ; HAVE_OFFSETS: any is not 0.
struct Weights32 { vec4 level[8]; vec2 scale, offset; };
struct Header { uint cols; uvec4 v[3]; };

uint row_vectors(uint cols);
uint row_start(uint row, uint cols) { return row / interleave * interleave * row_vectors(cols) + row % interleave; }
// Returns vector number i of the row that starts at `row`.
uvec4 vector_at(uint row, uint i) { return weights(row + interleave * i); }
// Returns half number i of a vector.
float half_of(uvec4 v, uint i) {
    const vec2 pair = unpackHalf2x16(v[i >> 1]);
    return (i & 1) == 0 ? pair.x : pair.y;
}

Weights32 scaled(float scale) {
    Weights32 w;
    w.scale = vec2(scale);
    w.offset = vec2(0.0);
    return w;
}
Weights32 unscaled() { return scaled(1.0); }
Header no_header(uint cols) {
    Header h;
    h.cols = cols;
    return h;
}

// Loads nibbles less `zero`: 0..15 from the low ones of v's bytes, 16..31 from the high ones.
void load_nibbles(uvec4 v, float zero, out vec4 w[8]) {
    [[unroll]] for (uint k = 0; k < 4; k++) {
        w[k] = bytes(v[k] & 0x0f0f0f0fu) - zero;
        w[4 + k] = bytes((v[k] >> 4) & 0x0f0f0f0fu) - zero;
    }
}

// Moves the four fifth bits from the lowest bits of v to bit 4 of each byte.
uint fifth_bits(uint v) { return ((v & 15) * 0x00204081u & 0x01010101u) << 4; }
// Loads nibbles as load_nibbles() does, with bit i of `high` as the fifth bit of weight i.
void load_5_bits(uvec4 v, uint high, float zero, out vec4 w[8]) {
    [[unroll]] for (uint k = 0; k < 4; k++) {
        w[k] = bytes((v[k] & 0x0f0f0f0fu) | fifth_bits(high >> (4 * k))) - zero;
        w[4 + k] = bytes(((v[k] >> 4) & 0x0f0f0f0fu) | fifth_bits(high >> (4 * k + 16))) - zero;
    }
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

#if defined(FORMAT_f32) || defined(FORMAT_f16) || defined(FORMAT_bf16)
Header load_header(uint row, uint cols, uint s) { return no_header(cols); }
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
uint row_vectors(uint cols) { return cols / 16 + (cols / 32 + 7) / 8; }
Header load_header(uint row, uint cols, uint s) {
    Header h = no_header(cols);
    h.v[0] = vector_at(row, cols / 16 + s);
    return h;
}
Weights32 load32(uint row, Header h, uint s, uint j) {
    Weights32 w = scaled(half_of(h.v[0], j));
    [[unroll]] for (uint i = 0; i < 2; i++) {
        const uvec4 v = vector_at(row, s * 16 + j * 2 + i);
        [[unroll]] for (uint k = 0; k < 4; k++) w.level[4 * i + k] = signed_bytes(v[k]);
    }
    return w;
}

#elif defined(FORMAT_q4_0) // row: nibbles (0..15 low, 16..31 high), then one fp16 scale per 32
uint row_vectors(uint cols) { return cols / 32 + (cols / 32 + 7) / 8; }
Header load_header(uint row, uint cols, uint s) {
    Header h = no_header(cols);
    h.v[0] = vector_at(row, cols / 32 + s);
    return h;
}
Weights32 load32(uint row, Header h, uint s, uint j) {
    Weights32 w = scaled(half_of(h.v[0], j));
    load_nibbles(vector_at(row, s * 8 + j), 8.0, w.level);
    return w;
}

#elif defined(FORMAT_q4_1) // row: nibbles as q4_0's, then one fp16 scale and minimum per 32
#define HAVE_OFFSETS
uint row_vectors(uint cols) { return cols / 32 + (cols / 32 + 3) / 4; }
Header load_header(uint row, uint cols, uint s) { return no_header(cols); }
Weights32 load32(uint row, Header h, uint s, uint j) {
    const vec2 d = unpackHalf2x16(vector_at(row, h.cols / 32 + s * 2 + j / 4)[j & 3]);
    Weights32 w = scaled(d.x);
    w.offset = vec2(-d.y);
    load_nibbles(vector_at(row, s * 8 + j), 0.0, w.level);
    return w;
}

#elif defined(FORMAT_q5_0) // row: nibbles as q4_0's, then 32 fifth bits per 32, then one fp16 scale
uint row_vectors(uint cols) { return cols / 32 + (cols / 32 + 3) / 4 + (cols / 32 + 7) / 8; }
Header load_header(uint row, uint cols, uint s) { return no_header(cols); }
Weights32 load32(uint row, Header h, uint s, uint j) {
    const uint high_at = h.cols / 32;
    Weights32 w = scaled(half_of(vector_at(row, high_at + (high_at + 3) / 4 + s), j));
    load_5_bits(vector_at(row, s * 8 + j), vector_at(row, high_at + s * 2 + j / 4)[j & 3], 16.0, w.level);
    return w;
}

#elif defined(FORMAT_q5_1) // row: nibbles as q4_0's, then per 32 one fp16 scale and minimum and 32 fifth bits
#define HAVE_OFFSETS
uint row_vectors(uint cols) { return cols / 32 + (cols / 32 + 1) / 2; }
Header load_header(uint row, uint cols, uint s) { return no_header(cols); }
Weights32 load32(uint row, Header h, uint s, uint j) {
    const uvec4 header = vector_at(row, h.cols / 32 + s * 4 + j / 2);
    const vec2 d = unpackHalf2x16(header[2 * (j & 1)]);
    Weights32 w = scaled(d.x);
    w.offset = vec2(-d.y);
    load_5_bits(vector_at(row, s * 8 + j), header[2 * (j & 1) + 1], 0.0, w.level);
    return w;
}

#elif defined(FORMAT_iq4_nl) // row: nibbles as q4_0's, then one fp16 scale per 32
uint row_vectors(uint cols) { return cols / 32 + (cols / 32 + 7) / 8; }
Header load_header(uint row, uint cols, uint s) {
    Header h = no_header(cols);
    h.v[0] = vector_at(row, cols / 32 + s);
    return h;
}
Weights32 load32(uint row, Header h, uint s, uint j) {
    Weights32 w = scaled(half_of(h.v[0], j));
    load_levels(vector_at(row, s * 8 + j), w.level);
    return w;
}

#elif defined(FORMAT_mxfp4) // row: nibbles as q4_0's, then one exponent byte per 32
uint row_vectors(uint cols) { return cols / 32 + (cols / 32 + 15) / 16; }
Header load_header(uint row, uint cols, uint s) {
    Header h = no_header(cols);
    h.v[0] = vector_at(row, cols / 32 + s / 2);
    return h;
}
Weights32 load32(uint row, Header h, uint s, uint j) {
    const uint e = byte_of(h.v[0], 8 * (s & 1) + j);
    // 2^(e - 128), as levels are doubled; the NaN e = 255 was refused when the file was read
    Weights32 w = scaled(uintBitsToFloat(e < 2 ? 0x00200000u << e : (e - 1) << 23));
    load_levels(vector_at(row, s * 8 + j), w.level);
    return w;
}

#elif defined(FORMAT_q2_k) // row: blocks of (1 vector of scales and minima, 4 of bit pairs), then fp16 d and dmin per block
#define HAVE_OFFSETS
#define SPLIT_SCALES
uint row_vectors(uint cols) { return cols / 256 * 5 + (cols / 256 + 3) / 4; }
Header load_header(uint row, uint cols, uint s) {
    Header h = no_header(cols);
    h.v[0] = vector_at(row, s * 5);
    h.v[1] = vector_at(row, cols / 256 * 5 + s / 4);
    return h;
}
Weights32 load32(uint row, Header h, uint s, uint j) {
    const uint block = s * 5, n = j >> 2, g = j & 3;
    const vec2 d = unpackHalf2x16(h.v[1][s & 3]);
    const uint scales = h.v[0][j >> 1] >> (16 * (j & 1));
    Weights32 w;
    w.scale = d.x * vec2(scales & 15, (scales >> 8) & 15);
    w.offset = d.y * vec2((scales >> 4) & 15, (scales >> 12) & 15);
    [[unroll]] for (uint i = 0; i < 2; i++) {
        const uvec4 v = vector_at(row, block + 1 + 2 * n + i);
        [[unroll]] for (uint k = 0; k < 4; k++) w.level[4 * i + k] = bytes((v[k] >> (2 * g)) & 0x03030303u);
    }
    return w;
}

#elif defined(FORMAT_q3_k) // row: blocks of (2 vectors of third bits, 4 of bit pairs), 12 bytes of scales each, one fp16 d each
#define SPLIT_SCALES
uint row_vectors(uint cols) { return cols / 256 * 6 + (cols / 256 * 3 + 3) / 4 + (cols / 256 + 7) / 8; }
Header load_header(uint row, uint cols, uint s) {
    Header h = no_header(cols);
    const uint scales_at = cols / 256 * 6;
    h.v[0] = vector_at(row, scales_at + s * 3 / 4);
    h.v[1] = vector_at(row, scales_at + (s * 3 + 2) / 4);
    h.v[2] = vector_at(row, scales_at + (cols / 256 * 3 + 3) / 4 + s / 8);
    return h;
}
// Returns word i of the three words of scales.
uint scale_word(Header h, uint s, uint i) {
    const uint at = s * 3 + i;
    return at / 4 == s * 3 / 4 ? h.v[0][at & 3] : h.v[1][at & 3];
}
Weights32 load32(uint row, Header h, uint s, uint j) {
    const uint block = s * 6, n = j >> 2, g = j & 3;
    const float d = half_of(h.v[2], s & 7);
    // 6-bit scales 2 j and 2 j + 1, in two bytes: low nibbles from the first two words, high pairs from the third
    const uint low = (scale_word(h, s, g >> 1) >> (16 * (j & 1) + 4 * n)) & 0x0f0fu;
    const uint high = (scale_word(h, s, 2) >> (16 * (j & 1) + 2 * (j >> 1))) & 0x0303u;
    const uint both = low | high << 4;
    Weights32 w = scaled(d);
    w.scale = d * (vec2(both & 0xff, both >> 8) - 32.0);
    [[unroll]] for (uint i = 0; i < 2; i++) {
        const uvec4 third = vector_at(row, block + i), v = vector_at(row, block + 2 + 2 * n + i);
        [[unroll]] for (uint k = 0; k < 4; k++) {
            const uint q = ((v[k] >> (2 * g)) & 0x03030303u) | ((third[k] >> j) & 0x01010101u) << 2;
            w.level[4 * i + k] = bytes(q) - 4.0;
        }
    }
    return w;
}

#elif defined(FORMAT_iq4_xs) // row: blocks of 8 vectors of nibbles as q4_0's, then 8 bytes of scales per block
uint row_vectors(uint cols) { return cols / 32 + (cols / 256 + 1) / 2; }
Header load_header(uint row, uint cols, uint s) {
    Header h = no_header(cols);
    h.v[0] = vector_at(row, cols / 32 + s / 2); // the scales of two blocks
    return h;
}
Weights32 load32(uint row, Header h, uint s, uint j) {
    const uint first = h.v[0][2 * (s & 1)], low = h.v[0][2 * (s & 1) + 1]; // d and high bit pairs; low nibbles
    const uint scale = ((low >> (4 * j)) & 15) | ((first >> (16 + 2 * j)) & 3) << 4;
    Weights32 w = scaled(unpackHalf2x16(first).x * (float(scale) - 32.0));
    load_levels(vector_at(row, s * 8 + j), w.level);
    return w;
}

#elif defined(FORMAT_q4_k) || defined(FORMAT_q5_k) // ggml's own block order: header (d, dmin, 12 bytes of scales), high bits, nibbles
#define HAVE_OFFSETS
#ifdef FORMAT_q5_k
const uint block_vectors = 11, nibbles_at = 3;
#else
const uint block_vectors = 9, nibbles_at = 1;
#endif
uint row_vectors(uint cols) { return cols / 256 * block_vectors; }
Header load_header(uint row, uint cols, uint s) {
    Header h = no_header(cols);
    h.v[0] = vector_at(row, s * block_vectors);
#ifdef FORMAT_q5_k // high bits
    [[unroll]] for (uint i = 0; i < 2; i++) h.v[1 + i] = vector_at(row, s * block_vectors + 1 + i);
#endif
    return h;
}
Weights32 load32(uint row, Header h, uint s, uint j) {
    const uint block = s * block_vectors;
    const uvec4 header = h.v[0];
    // 6-bit scale and minimum of sub-block j, from the 12 bytes in header.yzw
    const uint a = byte_of(header, 4 + (j & 3)), m = byte_of(header, 8 + (j & 3)), c = byte_of(header, 12 + (j & 3));
    const uint scale = j < 4 ? a & 63 : (c & 15) | (a >> 6) << 4;
    const uint minimum = j < 4 ? m & 63 : (c >> 4) | (m >> 6) << 4;
    const vec2 d = unpackHalf2x16(header.x);
    Weights32 w = scaled(d.x * float(scale));
    w.offset = vec2(d.y * float(minimum));
    [[unroll]] for (uint i = 0; i < 2; i++) {
        const uvec4 v = vector_at(row, block + nibbles_at + 2 * (j >> 1) + i);
#ifdef FORMAT_q5_k
        const uvec4 high = h.v[1 + i];
#endif
        [[unroll]] for (uint k = 0; k < 4; k++) {
            uint q = (v[k] >> (4 * (j & 1))) & 0x0f0f0f0fu;
#ifdef FORMAT_q5_k
            q |= ((high[k] >> j) & 0x01010101u) << 4;
#endif
            w.level[4 * i + k] = bytes(q);
        }
    }
    return w;
}

#elif defined(FORMAT_q6_k) // row: blocks of (8 vectors of low nibbles, 4 of high bit pairs, 16 int8 scales), then one fp16 d per block
#define SPLIT_SCALES
uint row_vectors(uint cols) { return cols / 256 * 13 + (cols / 256 + 7) / 8; }
Header load_header(uint row, uint cols, uint s) {
    Header h = no_header(cols);
    h.v[0] = vector_at(row, s * 13 + 12);
    h.v[1] = vector_at(row, cols / 256 * 13 + s / 8);
    return h;
}
Weights32 load32(uint row, Header h, uint s, uint j) {
    const uint block = s * 13, n = j >> 2, g = j & 3;
    const float d = half_of(h.v[1], s & 7);
    Weights32 w = scaled(d);
    w.scale = d * signed_bytes(h.v[0][j >> 1] >> (16 * (j & 1))).xy;
    [[unroll]] for (uint i = 0; i < 2; i++) {
        const uvec4 low = vector_at(row, block + 4 * n + 2 * (g & 1) + i), high = vector_at(row, block + 8 + 2 * n + i);
        [[unroll]] for (uint k = 0; k < 4; k++) {
            const uint q = ((low[k] >> (4 * (g >> 1))) & 0x0f0f0f0fu) | ((high[k] >> (2 * g)) & 0x03030303u) << 4;
            w.level[4 * i + k] = bytes(q) - 32.0;
        }
    }
    return w;
}
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
