// The formats of weight_formats.glsl whose levels are entries of a grid (grids.glsl).

// Stores two entries, number 2 i and the next, which are the halves of v; and returns the stored bytes of the weights 4 (k % 2)
// ... of an entry: magnitudes, or codes of IQ1, each in a byte. k: a constant.
#if defined(FORMAT_iq2_xxs) || defined(FORMAT_iq2_xs)
shared uvec2 grid[GRID_ENTRIES];
void store_entries(uint i, uint v) {
    grid[2 * i] = uvec2(iq2_magnitudes(spread_pairs(v & 0xff)), iq2_magnitudes(spread_pairs((v >> 8) & 0xff)));
    grid[2 * i + 1] = uvec2(iq2_magnitudes(spread_pairs((v >> 16) & 0xff)), iq2_magnitudes(spread_pairs(v >> 24)));
}
uint grid_at(uint index, uint k) { return grid[index][k & 1]; }
#elif defined(FORMAT_iq2_s)
shared uint grid[GRID_ENTRIES]; // codes, half as many bytes as magnitudes
void store_entries(uint i, uint v) {
    grid[2 * i] = codes_of_eight(v);
    grid[2 * i + 1] = codes_of_eight(v >> 16);
}
uint grid_at(uint index, uint k) { return iq2_magnitudes((grid[index] >> (4 * (k & 1))) & 0x0f0f0f0fu); }
#elif defined(FORMAT_iq3_xxs)
shared uint grid[GRID_ENTRIES];
void store_entries(uint i, uint v) {
    grid[2 * i] = iq3_xxs_magnitudes(spread_nibbles(v));
    grid[2 * i + 1] = iq3_xxs_magnitudes(spread_nibbles(v >> 16));
}
uint grid_at(uint index, uint k) { return grid[index]; }
#elif defined(FORMAT_iq3_s)
shared uint grid[GRID_ENTRIES];
void store_entries(uint i, uint v) {
    grid[2 * i] = iq3_s_magnitudes(spread_nibbles(v));
    grid[2 * i + 1] = iq3_s_magnitudes(spread_nibbles(v >> 16));
}
uint grid_at(uint index, uint k) { return grid[index]; }
#else
shared uint grid[GRID_ENTRIES / 2]; // of an entry 16 bits: nibble m has the codes of weights m and 4 + m
uint pairs_to_nibbles(uint v) {
    const uint codes = codes_of_eight(v), nibbles = (codes | codes >> 2) & 0x0f0f0f0fu, bytes_apart = (nibbles | nibbles >> 4) & 0x00ff00ffu;
    return (bytes_apart | bytes_apart >> 8) & 0xffff;
}
void store_entries(uint i, uint v) { grid[i] = pairs_to_nibbles(v) | pairs_to_nibbles(v >> 16) << 16; }
uint grid_at(uint index, uint k) { return (spread_nibbles(grid[index >> 1] >> (16 * (index & 1))) >> (2 * (k & 1))) & 0x03030303u; }
#endif

void prepare_weights() {
    for (uint i = gl_LocalInvocationID.x; i < GRID_ENTRIES / 8; i += workgroup) {
        const uvec4 packed = weights(i);
        [[unroll]] for (uint k = 0; k < 4; k++) store_entries(4 * i + k, packed[k]);
    }
    barrier();
}

#if defined(FORMAT_iq1_s) || defined(FORMAT_iq1_m)
vec4 levels_of(uint v) { return bytes(v); }
// Returns levels 8 c + 2, or 8 c if `less` is 1, for the codes c of weights 4 k ....
uint iq1_codes(uint index, uint k, uint less) { return grid_at(index, k) << 3 | (less == 0 ? 0x02020202u : 0); }
#else
vec4 levels_of(uint v) { return signed_bytes(v); }
// Returns magnitudes (none is 0) as signed bytes, with the signs of weights 4 k ...: single bits.
uint with_signs(uint magnitudes, uint signs, uint k) {
    const uint negative = (signs >> k) & 0x01010101u;
    return (magnitudes ^ (negative << 8) - negative) + negative;
}
// Returns 32 signs. In the places of weights 7, 15, 23 and 31 the word has other bits; the signs of these weights make the number
// of negatives in each eight even. The functions below return the other bits.
uint even_signs(uint word) {
    const uint seven = word & 0x55ffffffu, columns = seven ^ (seven >> 8) ^ (seven >> 16) ^ (seven >> 24);
    return seven | ((columns ^ (columns >> 1)) & 0x55) << 25;
}
uint bits_among_signs(uint word, uint g) { return (word >> (25 + 2 * g)) & 1; }
uint nibble_among_signs(uint word) {
    const uint pairs = (word >> 25) & 0x55, both = (pairs | pairs >> 1) & 0x33;
    return (both | both >> 2) & 15;
}
#endif

#if defined(FORMAT_iq2_xxs) // row: blocks of 4 vectors of indices and signs, with a scale among these, then one fp16 d per block
#define HEADER_VECTORS 1
uint row_vectors(uint cols) { return cols / 256 * 4 + (cols / 256 + 7) / 8; }
uint header_at(uint cols, uint s, uint k) { return cols / 256 * 4 + s / 8; }
Raw32 fetch32(uint row, Header h, uint s, uint j) {
    Raw32 raw;
    FETCH_PAIR(both, pair_at(row, s * 4 + j / 2, j & 1));
    raw.w[2] = header_word(row, h, s, 0, (s & 7) >> 1);
    return raw;
}
uint codes4(Raw32 raw, uint k) {
    return with_signs(grid_at((raw.w[0] >> (8 * (k / 2))) & 0xff, k), even_signs(raw.w[1]), k);
}
Scales32 scales32(Raw32 raw, uint s, uint j) {
    return scaled(block_scale(raw.w[2], s) * (0.25 * float(nibble_among_signs(raw.w[1])) + 0.125));
}

#elif defined(FORMAT_iq2_xs) // row: blocks of 4 vectors of indices and signs, 8 bytes of scales each, one fp16 d each
#define SPLIT_SCALES
#define HEADER_VECTORS 2
uint row_vectors(uint cols) { return cols / 256 * 4 + (cols / 256 + 1) / 2 + (cols / 256 + 7) / 8; }
uint header_at(uint cols, uint s, uint k) {
    return cols / 256 * 4 + (k == 0 ? s / 2 : (cols / 256 + 1) / 2 + s / 8);
}
Raw32 fetch32(uint row, Header h, uint s, uint j) {
    Raw32 raw;
    FETCH_PAIR(both, pair_at(row, s * 4 + j / 2, j & 1));
    raw.w[2] = header_word(row, h, s, 0, 2 * (s & 1) + j / 4);
    raw.w[3] = header_word(row, h, s, 1, (s & 7) >> 1);
    return raw;
}
uint codes4(Raw32 raw, uint k) {
    const uint g = k / 2, index = ((raw.w[0] >> (8 * g)) & 0xff) | bits_among_signs(raw.w[1], g) << 8;
    return with_signs(grid_at(index, k), even_signs(raw.w[1]), k);
}
Scales32 scales32(Raw32 raw, uint s, uint j) {
    const uint scales = raw.w[2] >> (8 * (j & 3));
    return scaled(block_scale(raw.w[3], s) * (0.25 * vec2(scales & 15, (scales >> 4) & 15) + 0.125));
}

#elif defined(FORMAT_iq2_s) // row: blocks of (4 vectors of indices and signs, 1 of high bits and scales), then one fp16 d each
#define SPLIT_SCALES
#define HEADER_VECTORS 2
uint row_vectors(uint cols) { return cols / 256 * 5 + (cols / 256 + 7) / 8; }
uint header_at(uint cols, uint s, uint k) { return k == 0 ? s * 5 + 4 : cols / 256 * 5 + s / 8; }
Raw32 fetch32(uint row, Header h, uint s, uint j) {
    Raw32 raw;
    FETCH_PAIR(both, pair_at(row, s * 5 + j / 2, j & 1));
    raw.w[2] = header_word(row, h, s, 0, j >> 1) >> (16 * (j & 1));
    raw.w[3] = header_word(row, h, s, 1, (s & 7) >> 1);
    return raw;
}
uint codes4(Raw32 raw, uint k) {
    const uint g = k / 2, index = ((raw.w[0] >> (8 * g)) & 0xff) | ((raw.w[2] >> (2 * g)) & 3) << 8;
    return with_signs(grid_at(index, k), raw.w[1], k);
}
Scales32 scales32(Raw32 raw, uint s, uint j) {
    return scaled(block_scale(raw.w[3], s) * (0.25 * vec2((raw.w[2] >> 8) & 15, (raw.w[2] >> 12) & 15) + 0.125));
}

#elif defined(FORMAT_iq3_xxs) // row: blocks of (4 vectors of indices, 2 of signs, with a scale among these), then one fp16 d each
#define HEADER_VECTORS 1
uint row_vectors(uint cols) { return cols / 256 * 6 + (cols / 256 + 7) / 8; }
uint header_at(uint cols, uint s, uint k) { return cols / 256 * 6 + s / 8; }
Raw32 fetch32(uint row, Header h, uint s, uint j) {
    Raw32 raw;
    FETCH_PAIR(indices, pair_at(row, s * 6 + j / 2, j & 1));
    raw.w[2] = word_at(row, s * 6 + 4 + j / 4, j & 3);
    raw.w[3] = header_word(row, h, s, 0, (s & 7) >> 1);
    return raw;
}
uint codes4(Raw32 raw, uint k) {
    return with_signs(grid_at((raw.w[k / 4] >> (8 * (k & 3))) & 0xff, k), even_signs(raw.w[2]), k);
}
Scales32 scales32(Raw32 raw, uint s, uint j) {
    return scaled(block_scale(raw.w[3], s) * (0.5 * float(nibble_among_signs(raw.w[2])) + 0.25));
}

#elif defined(FORMAT_iq3_s) // row: blocks of (4 vectors of indices, 2 of signs), then 3 words of high bits and scales, and fp16 d
#define HEADER_VECTORS 3
uint row_vectors(uint cols) { return cols / 256 * 6 + (cols / 256 * 3 + 3) / 4 + (cols / 256 + 7) / 8; }
uint header_at(uint cols, uint s, uint k) { // the first and the last word of high bits and scales, d
    const uint high = cols / 256 * 6;
    return k == 2 ? high + (cols / 256 * 3 + 3) / 4 + s / 8 : high + (s * 3 + 2 * k) / 4;
}
// Returns word i of the three words of high bits and scales.
uint scale_word(uint row, Header h, uint s, uint i) {
    const uint at = s * 3 + i;
    return header_word(row, h, s, at / 4 == s * 3 / 4 ? 0 : 1, at & 3);
}
Raw32 fetch32(uint row, Header h, uint s, uint j) {
    Raw32 raw;
    FETCH_PAIR(indices, pair_at(row, s * 6 + j / 2, j & 1));
    raw.w[2] = word_at(row, s * 6 + 4 + j / 4, j & 3);
    raw.w[3] = header_word(row, h, s, 2, (s & 7) >> 1);
    raw.w[4] = scale_word(row, h, s, j >> 2) >> (8 * (j & 3));
    raw.w[5] = scale_word(row, h, s, 2) >> (4 * j);
    return raw;
}
uint codes4(Raw32 raw, uint k) {
    return with_signs(grid_at(((raw.w[k / 4] >> (8 * (k & 3))) & 0xff) | ((raw.w[4] >> k) & 1) << 8, k), raw.w[2], k);
}
Scales32 scales32(Raw32 raw, uint s, uint j) { return scaled(block_scale(raw.w[3], s) * float(2 * (raw.w[5] & 15) + 1)); }

#elif defined(FORMAT_iq1_s) // row: blocks of (2 vectors of indices, 1 of high bits, scales and signs), then one fp16 d per block
#define ZERO 9
#define HEADER_VECTORS 2
uint row_vectors(uint cols) { return cols / 256 * 3 + (cols / 256 + 7) / 8; }
uint header_at(uint cols, uint s, uint k) { return k == 0 ? s * 3 + 2 : cols / 256 * 3 + s / 8; }
Raw32 fetch32(uint row, Header h, uint s, uint j) {
    Raw32 raw;
    raw.w[0] = word_at(row, s * 3 + j / 4, j & 3);
    raw.w[1] = header_word(row, h, s, 0, j >> 1) >> (16 * (j & 1));
    raw.w[2] = header_word(row, h, s, 1, (s & 7) >> 1);
    return raw;
}
uint codes4(Raw32 raw, uint k) {
    const uint g = k / 2, index = ((raw.w[0] >> (8 * g)) & 0xff) | ((raw.w[1] >> (3 * g)) & 7) << 8;
    return iq1_codes(index, k, (raw.w[1] >> 15) & 1);
}
Scales32 scales32(Raw32 raw, uint s, uint j) {
    return scaled(block_scale(raw.w[2], s) * (0.25 * float((raw.w[1] >> 12) & 7) + 0.125));
}

#elif defined(FORMAT_iq1_m) // row: blocks of (2 vectors of indices, 1 of high bits and signs), then fp16 d and 48 bits of scales
#define ZERO 9
#define SPLIT_SCALES
#define HEADER_VECTORS 2
uint row_vectors(uint cols) { return cols / 256 * 3 + (cols / 256 + 1) / 2; }
uint header_at(uint cols, uint s, uint k) { return k == 0 ? s * 3 + 2 : cols / 256 * 3 + s / 2; }
Raw32 fetch32(uint row, Header h, uint s, uint j) {
    Raw32 raw;
    raw.w[0] = word_at(row, s * 3 + j / 4, j & 3);
    raw.w[1] = header_word(row, h, s, 0, j >> 1) >> (16 * (j & 1));
    const uvec2 header = header_pair(row, h, s, 1, s & 1);
    raw.w[2] = header.x;
    raw.w[3] = header.y;
    return raw;
}
uint codes4(Raw32 raw, uint k) {
    const uint g = k / 2, high = raw.w[1] >> (4 * g);
    return iq1_codes(((raw.w[0] >> (8 * g)) & 0xff) | (high & 7) << 8, k, (high >> 3) & 1);
}
Scales32 scales32(Raw32 raw, uint s, uint j) {
    const uint at = 16 + 6 * j; // of two scales of three bits
    const uint both = at < 32 ? raw.w[2] >> at | raw.w[3] << (32 - at) : raw.w[3] >> (at - 32);
    return scaled(block_scale(raw.w[2], 0) * (0.25 * vec2(both & 7, (both >> 3) & 7) + 0.125));
}
#endif
