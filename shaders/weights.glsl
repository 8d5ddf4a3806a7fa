// Weight formats as the device stores them (model/gpu/device_layout.h): rows of 16-byte words, decoded 32 weights at a time.
// FORMAT_<name> chooses one: row_vectors(cols) is the uvec4s of a row, load32 gives w[32 b .. 32 b + 31] of a row. All invocations
// of a workgroup call prepare_weights() first.
#include "tables.h"

layout(binding = WEIGHTS_BINDING) readonly buffer Weights { uvec4 weights[]; };

uint byte_of(uvec4 v, uint i) { return (v[i >> 2] >> (8 * (i & 3))) & 0xff; }
vec4 bytes(uint v) { return vec4(v & 0xff, (v >> 8) & 0xff, (v >> 16) & 0xff, v >> 24); }
vec4 signed_bytes(uint v) {
    const int s = int(v);
    return vec4(s << 24 >> 24, s << 16 >> 24, s << 8 >> 24, s >> 24);
}
// Half number i of the fp16 array that starts at uvec4 `first`.
float half_at(uint first, uint i) {
    const vec2 pair = unpackHalf2x16(weights[first + (i >> 3)][(i >> 1) & 3]);
    return (i & 1) == 0 ? pair.x : pair.y;
}
// Word number i of the array that starts at uvec4 `first`.
uint word_at(uint first, uint i) { return weights[first + (i >> 2)][i & 3]; }

// The four fifth bits in the lowest bits of v, at bit 4 of each byte.
uint fifth_bits(uint v) { return ((v & 15) * 0x00204081u & 0x01010101u) << 4; }

#if defined(FORMAT_iq4_nl) || defined(FORMAT_iq4_xs) || defined(FORMAT_mxfp4)
shared float levels[16]; // drivers put constant arrays into slow memory
void prepare_weights() {
    for (uint i = gl_LocalInvocationID.x; i < 16; i += gl_WorkGroupSize.x) {
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
// d times the levels of 32 nibbles, 0..15 in the low ones of v's bytes, 16..31 in the high ones
void load_levels(uvec4 v, float d, out vec4 w[8]) {
    [[unroll]] for (uint j = 0; j < 4; j++) {
        w[j] = d * levels_of(v[j] & 0x0f0f0f0fu);
        w[4 + j] = d * levels_of((v[j] >> 4) & 0x0f0f0f0fu);
    }
}
#else
void prepare_weights() {}
#endif

#if defined(FORMAT_f32)
uint row_vectors(uint cols) { return cols / 4; }
void load32(uint row, uint cols, uint b, out vec4 w[8]) {
    [[unroll]] for (uint i = 0; i < 8; i++) w[i] = uintBitsToFloat(weights[row + b * 8 + i]);
}

#elif defined(FORMAT_f16)
uint row_vectors(uint cols) { return cols / 8; }
void load32(uint row, uint cols, uint b, out vec4 w[8]) {
    [[unroll]] for (uint i = 0; i < 4; i++) {
        const uvec4 v = weights[row + b * 4 + i];
        w[2 * i] = vec4(unpackHalf2x16(v.x), unpackHalf2x16(v.y));
        w[2 * i + 1] = vec4(unpackHalf2x16(v.z), unpackHalf2x16(v.w));
    }
}

#elif defined(FORMAT_bf16)
uint row_vectors(uint cols) { return cols / 8; }
void load32(uint row, uint cols, uint b, out vec4 w[8]) {
    [[unroll]] for (uint i = 0; i < 4; i++) {
        const uvec4 v = weights[row + b * 4 + i], low = v << 16, high = v & 0xffff0000u;
        w[2 * i] = uintBitsToFloat(uvec4(low.x, high.x, low.y, high.y));
        w[2 * i + 1] = uintBitsToFloat(uvec4(low.z, high.z, low.w, high.w));
    }
}

#elif defined(FORMAT_q8_0) // row: int8 levels, then one fp16 scale per 32
uint row_vectors(uint cols) { return cols / 16 + (cols / 32 + 7) / 8; }
void load32(uint row, uint cols, uint b, out vec4 w[8]) {
    const float d = half_at(row + cols / 16, b);
    [[unroll]] for (uint i = 0; i < 2; i++) {
        const uvec4 v = weights[row + b * 2 + i];
        [[unroll]] for (uint j = 0; j < 4; j++) w[4 * i + j] = d * signed_bytes(v[j]);
    }
}

#elif defined(FORMAT_q4_0) // row: nibbles (0..15 low, 16..31 high), then one fp16 scale per 32
uint row_vectors(uint cols) { return cols / 32 + (cols / 32 + 7) / 8; }
void load32(uint row, uint cols, uint b, out vec4 w[8]) {
    const float d = half_at(row + cols / 32, b);
    const uvec4 v = weights[row + b];
    [[unroll]] for (uint j = 0; j < 4; j++) {
        w[j] = d * (bytes(v[j] & 0x0f0f0f0fu) - 8.0);
        w[4 + j] = d * (bytes((v[j] >> 4) & 0x0f0f0f0fu) - 8.0);
    }
}

#elif defined(FORMAT_q4_1) // row: nibbles as q4_0's, then one fp16 scale and minimum per 32
uint row_vectors(uint cols) { return cols / 32 + (cols / 32 + 3) / 4; }
void load32(uint row, uint cols, uint b, out vec4 w[8]) {
    const vec2 d = unpackHalf2x16(word_at(row + cols / 32, b));
    const uvec4 v = weights[row + b];
    [[unroll]] for (uint j = 0; j < 4; j++) {
        w[j] = d.x * bytes(v[j] & 0x0f0f0f0fu) + d.y;
        w[4 + j] = d.x * bytes((v[j] >> 4) & 0x0f0f0f0fu) + d.y;
    }
}

#elif defined(FORMAT_q5_0) // row: nibbles as q4_0's, then 32 fifth bits per 32, then one fp16 scale
uint row_vectors(uint cols) { return cols / 32 + (cols / 32 + 3) / 4 + (cols / 32 + 7) / 8; }
void load32(uint row, uint cols, uint b, out vec4 w[8]) {
    const uint high_at = row + cols / 32, high = word_at(high_at, b);
    const float d = half_at(high_at + (cols / 32 + 3) / 4, b);
    const uvec4 v = weights[row + b];
    [[unroll]] for (uint j = 0; j < 4; j++) {
        w[j] = d * (bytes((v[j] & 0x0f0f0f0fu) | fifth_bits(high >> (4 * j))) - 16.0);
        w[4 + j] = d * (bytes(((v[j] >> 4) & 0x0f0f0f0fu) | fifth_bits(high >> (4 * j + 16))) - 16.0);
    }
}

#elif defined(FORMAT_q5_1) // row: nibbles as q4_0's, then per 32 one fp16 scale and minimum and 32 fifth bits
uint row_vectors(uint cols) { return cols / 32 + (cols / 32 + 1) / 2; }
void load32(uint row, uint cols, uint b, out vec4 w[8]) {
    const uint header = row + cols / 32, high = word_at(header, 2 * b + 1);
    const vec2 d = unpackHalf2x16(word_at(header, 2 * b));
    const uvec4 v = weights[row + b];
    [[unroll]] for (uint j = 0; j < 4; j++) {
        w[j] = d.x * bytes((v[j] & 0x0f0f0f0fu) | fifth_bits(high >> (4 * j))) + d.y;
        w[4 + j] = d.x * bytes(((v[j] >> 4) & 0x0f0f0f0fu) | fifth_bits(high >> (4 * j + 16))) + d.y;
    }
}

#elif defined(FORMAT_iq4_nl) // row: nibbles as q4_0's, then one fp16 scale per 32
uint row_vectors(uint cols) { return cols / 32 + (cols / 32 + 7) / 8; }
void load32(uint row, uint cols, uint b, out vec4 w[8]) { load_levels(weights[row + b], half_at(row + cols / 32, b), w); }

#elif defined(FORMAT_mxfp4) // row: nibbles as q4_0's, then one exponent byte per 32
uint row_vectors(uint cols) { return cols / 32 + (cols / 32 + 15) / 16; }
void load32(uint row, uint cols, uint b, out vec4 w[8]) {
    const uint e = byte_of(weights[row + cols / 32 + (b >> 4)], b & 15);
    // 2^(e - 128), as levels are doubled; the NaN e = 255 was refused when the file was read
    load_levels(weights[row + b], uintBitsToFloat(e < 2 ? 0x00200000u << e : (e - 1) << 23), w);
}

#elif defined(FORMAT_q2_k) // row: blocks of (1 vector of scales and minima, 4 of bit pairs), then fp16 d and dmin per block
uint row_vectors(uint cols) { return cols / 256 * 5 + (cols / 256 + 3) / 4; }
void load32(uint row, uint cols, uint b, out vec4 w[8]) {
    const uint block = row + (b >> 3) * 5, n = (b >> 2) & 1, g = b & 3;
    const vec2 d = unpackHalf2x16(word_at(row + cols / 256 * 5, b >> 3));
    const uint scales = weights[block][(b & 7) >> 1] >> (16 * (b & 1));
    const vec2 s = d.x * vec2(scales & 15, (scales >> 8) & 15), offset = d.y * vec2((scales >> 4) & 15, (scales >> 12) & 15);
    [[unroll]] for (uint i = 0; i < 2; i++) {
        const uvec4 v = weights[block + 1 + 2 * n + i];
        [[unroll]] for (uint k = 0; k < 4; k++) w[4 * i + k] = s[i] * bytes((v[k] >> (2 * g)) & 0x03030303u) - offset[i];
    }
}

#elif defined(FORMAT_q3_k) // row: blocks of (2 vectors of third bits, 4 of bit pairs), 12 bytes of scales each, one fp16 d each
uint row_vectors(uint cols) { return cols / 256 * 6 + (cols / 256 * 3 + 3) / 4 + (cols / 256 + 7) / 8; }
void load32(uint row, uint cols, uint b, out vec4 w[8]) {
    const uint block = row + (b >> 3) * 6, j = b & 7, n = j >> 2, g = j & 3;
    const uint scales_at = row + cols / 256 * 6, scales = (b >> 3) * 3;
    const float d = half_at(scales_at + (cols / 256 * 3 + 3) / 4, b >> 3);
    // 6-bit scales 2 j and 2 j + 1, in two bytes: low nibbles from the first two words, high pairs from the third
    const uint low = (word_at(scales_at, scales + (g >> 1)) >> (16 * (j & 1) + 4 * n)) & 0x0f0fu;
    const uint high = (word_at(scales_at, scales + 2) >> (16 * (j & 1) + 2 * (j >> 1))) & 0x0303u;
    const uint both = low | high << 4;
    const vec2 s = d * (vec2(both & 0xff, both >> 8) - 32.0);
    [[unroll]] for (uint i = 0; i < 2; i++) {
        const uvec4 third = weights[block + i], v = weights[block + 2 + 2 * n + i];
        [[unroll]] for (uint k = 0; k < 4; k++) {
            const uint q = ((v[k] >> (2 * g)) & 0x03030303u) | ((third[k] >> j) & 0x01010101u) << 2;
            w[4 * i + k] = s[i] * (bytes(q) - 4.0);
        }
    }
}

#elif defined(FORMAT_iq4_xs) // row: blocks of 8 vectors of nibbles as q4_0's, then 8 bytes of scales per block
uint row_vectors(uint cols) { return cols / 32 + (cols / 256 + 1) / 2; }
void load32(uint row, uint cols, uint b, out vec4 w[8]) {
    const uint header = row + cols / 32, at = (b >> 3) * 2, j = b & 7;
    const uint first = word_at(header, at), low = word_at(header, at + 1); // d and high bit pairs; low nibbles
    const uint scale = ((low >> (4 * j)) & 15) | ((first >> (16 + 2 * j)) & 3) << 4;
    load_levels(weights[row + b], unpackHalf2x16(first).x * (float(scale) - 32.0), w);
}

#elif defined(FORMAT_q4_k) || defined(FORMAT_q5_k) // ggml's own block order: header (d, dmin, 12 bytes of scales), high bits, nibbles
#ifdef FORMAT_q5_k
const uint block_vectors = 11, nibbles_at = 3;
#else
const uint block_vectors = 9, nibbles_at = 1;
#endif
uint row_vectors(uint cols) { return cols / 256 * block_vectors; }
void load32(uint row, uint cols, uint b, out vec4 w[8]) {
    const uint block = row + (b >> 3) * block_vectors, j = b & 7;
    const uvec4 header = weights[block];
    // 6-bit scale and minimum of sub-block j, from the 12 bytes in header.yzw
    const uint a = byte_of(header, 4 + (j & 3)), m = byte_of(header, 8 + (j & 3)), c = byte_of(header, 12 + (j & 3));
    const uint scale = j < 4 ? a & 63 : (c & 15) | (a >> 6) << 4;
    const uint minimum = j < 4 ? m & 63 : (c >> 4) | (m >> 6) << 4;
    const vec2 d = unpackHalf2x16(header.x);
    const float s = d.x * float(scale), offset = d.y * float(minimum);
    [[unroll]] for (uint i = 0; i < 2; i++) {
        const uvec4 v = weights[block + nibbles_at + 2 * (j >> 1) + i];
#ifdef FORMAT_q5_k
        const uvec4 high = weights[block + 1 + i];
#endif
        [[unroll]] for (uint k = 0; k < 4; k++) {
            uint q = (v[k] >> (4 * (j & 1))) & 0x0f0f0f0fu;
#ifdef FORMAT_q5_k
            q |= ((high[k] >> j) & 0x01010101u) << 4;
#endif
            w[4 * i + k] = s * bytes(q) - offset;
        }
    }
}

#elif defined(FORMAT_q6_k) // row: blocks of (8 vectors of low nibbles, 4 of high bit pairs, 16 int8 scales), then one fp16 d per block
uint row_vectors(uint cols) { return cols / 256 * 13 + (cols / 256 + 7) / 8; }
void load32(uint row, uint cols, uint b, out vec4 w[8]) {
    const uint block = row + (b >> 3) * 13, n = (b >> 2) & 1, g = b & 3;
    const float d = half_at(row + cols / 256 * 13, b >> 3);
    const uint scales = weights[block + 12][(b & 7) >> 1] >> (16 * (b & 1));
    const vec2 s = d * signed_bytes(scales).xy;
    [[unroll]] for (uint i = 0; i < 2; i++) {
        const uvec4 low = weights[block + 4 * n + 2 * (g & 1) + i], high = weights[block + 8 + 2 * n + i];
        [[unroll]] for (uint k = 0; k < 4; k++) {
            const uint q = ((low[k] >> (4 * (g >> 1))) & 0x0f0f0f0fu) | ((high[k] >> (2 * g)) & 0x03030303u) << 4;
            w[4 * i + k] = s[i] * (bytes(q) - 32.0);
        }
    }
}
#endif
