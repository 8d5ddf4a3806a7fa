// Weight formats as the device stores them (model/gpu/device_layout.h): rows of 16-byte words, decoded 32 weights at a time.
// FORMAT_<name> chooses one: row_vectors(cols) is the uvec4s of a row, load32 gives w[32 b .. 32 b + 31] of a row.
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
