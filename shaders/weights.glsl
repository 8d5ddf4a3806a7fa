// Weight formats in device memory (model/gpu/device_layout.h): rows of 16-byte words, `interleave` of them interleaved word by
// word, decoded 32 weights at a time, with the bits of each block in the order of model/files/formats/device_blocks.h.
// FORMAT_<name> chooses the format: row_vectors(cols) is the uvec4s of a row, load32(row_start, header, s, j) returns weights 256
// s + 32 j ... of it. If weights 256 s ... share scales, header_at(cols, s, k) are the HEADER_VECTORS vectors with these. All
// invocations of a workgroup call prepare_weights() first. The rows of formats with a grid follow the grid.
#include "grids.glsl"
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
struct Header { uint cols; }; // an invocation has 32 weights, and loads only the words for these
#endif
uint header_at(uint cols, uint s, uint k);
uvec4 header_vector(uint row, Header h, uint s, uint k);
uint header_word(uint row, Header h, uint s, uint k, uint c);
uvec2 header_pair(uint row, Header h, uint s, uint k, uint half_of_it);

uint row_vectors(uint cols);
uint row_start(uint row, uint cols) { return GRID_ENTRIES / 8 + row / interleave * interleave * row_vectors(cols) + row % interleave; }

vec4 bytes(uint v) { return vec4(v & 0xff, (v >> 8) & 0xff, (v >> 16) & 0xff, v >> 24); }
vec4 signed_bytes(uint v) {
    const int s = int(v);
    return vec4(s << 24 >> 24, s << 16 >> 24, s << 8 >> 24, s >> 24);
}
// Returns the fp16 scale in half i % 2 of a word, or both; they are stored 1 / p.scale_unit times as large (device_layout.h).
float block_scale(uint word, uint i) { return p.scale_unit * unpackHalf2x16(word >> (16 * (i & 1))).x; }
vec2 block_scales(uint word) { return p.scale_unit * unpackHalf2x16(word); }

// Weight i is scale[i / 16] * level[i / 4][i % 4] - offset[i / 16]. SPLIT_SCALES: the two scales differ; HAVE_OFFSETS: one is
// not 0.
struct Weights32 { vec4 level[8]; vec2 scale, offset; };
Weights32 unscaled() {
    Weights32 w;
    w.scale = vec2(1.0);
    w.offset = vec2(0.0);
    return w;
}

// The scales of 32 weights, and the offsets that are subtracted from each half of them.
struct Scales32 { vec2 scale, minimum; };
Scales32 scaled(vec2 scale) { return Scales32(scale, vec2(0.0)); }
Scales32 scaled(float scale) { return scaled(vec2(scale)); }

#include "weight_formats.glsl"
#if defined(ZERO) || defined(HAVE_MINIMUMS)
#define HAVE_OFFSETS
#endif

// Returns weights 256 s + 32 j ... of the row.
Weights32 load32(uint row, Header h, uint s, uint j) { return decode32(fetch32(row, h, s, j), s, j); }

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

// Returns the sums of x's halves, if dot32 needs them.
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
