#version 440
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require
#extension GL_EXT_spirv_intrinsics : require
#include "params.h"

// matmul.comp's product in integers, for devices with int8 dot products and without cooperative matrices: levels are multiplied
// by x in two digits, as inputs_to_int8.comp has made it; their sums over 32 columns (16 if these have a scale of their own) are
// exact, and are scaled and added up in fp32. Tiles as in matmul_tiled.comp, 32 `blocks` columns at a time.
// once per weight format but f32 f16 bf16
// params: matmul_params
layout(local_size_x_id = 0) in; // tile_rows / rows * tile_tokens / columns
layout(constant_id = 0) const uint workgroup = 1;
layout(constant_id = 1) const uint tile_rows = 128;
layout(constant_id = 2) const uint tile_tokens = 64;
layout(constant_id = 3) const uint rows = 4;
layout(constant_id = 4) const uint columns = 8; // tokens per invocation
layout(constant_id = 5) const uint blocks = 1;
layout(constant_id = 6) const uint accumulate = 0;
layout(constant_id = 7) const uint interleave = 1; // of the rows of the weights
layout(constant_id = 8) const uint experts = 0; // 1: the matrix is a stack of experts' matrices (rows.glsl)
layout(push_constant) uniform Push { matmul_params p; };
layout(binding = 0) buffer Y { float y[]; };
#define WEIGHTS_BINDING 1
#include "weights.glsl"
#include "digits.glsl"
READ_VECTORS(2, x)
#define ROWS_TILE tile_tokens
#include "rows.glsl"

// In shared memory 32 columns of a row are two vectors of levels, its scales and minimums; of a token, what inputs_to_int8 wrote.
// Both numbers of vectors are odd, so that eight invocations that read the same one of eight rows or tokens access different
// banks.
shared uvec4 w_tile[tile_rows * blocks * 3];
shared uvec4 x_tile[tile_tokens * blocks * 5];

// Loads columns 32 b ... of the weights of rows first_row ...; past the end the last row, never stored, or zeros for columns.
void load_weights(uint first_row, uint b) {
    for (uint i = gl_LocalInvocationID.x; i < tile_rows * blocks; i += workgroup) {
        const uint at = min(b + i % blocks, p.cols / 32 - 1), s = at >> 3, j = at & 7;
        const uint start = row_start(matrix_row + min(first_row + i / blocks, row_count - 1), p.cols), to = (i % blocks * tile_rows + i / blocks) * 3;
        const Raw32 raw = fetch32(start, load_header(start, p.cols, s), s, j);
        const Scales32 scales = scales32(raw, s, j);
        uvec4 levels[2];
        levels_as_bytes(raw, levels);
        w_tile[to] = levels[0];
        w_tile[to + 1] = levels[1];
        const bool beyond = b + i % blocks > at;
        w_tile[to + 2] = beyond ? uvec4(0) : floatBitsToUint(vec4(scales.scale, scales.minimum));
    }
}

// Loads columns 32 b ... of x; past the end: the last token, never stored; past the last columns: these.
void load_inputs(uint first_token, uint b) {
    const uint end = p.cols / 32;
    for (uint i = gl_LocalInvocationID.x; i < tile_tokens * blocks; i += workgroup) {
        const uint t = x_row(first_token + i / blocks), from = (t * end + min(b + i % blocks, end - 1)) * 5,
                   to = (i % blocks * tile_tokens + i / blocks) * 5;
        [[unroll]] for (uint k = 0; k < 5; k++) x_tile[to + k] = x(from + k);
    }
}

void main() {
    prepare_weights();
    const uint first_row = gl_WorkGroupID.x * tile_rows;
    if (!find_tile()) return;
    const uint row_step = tile_rows / rows, token_step = tile_tokens / columns;
    const uint row = gl_LocalInvocationID.x % row_step, token = gl_LocalInvocationID.x / row_step; // its first, within the tile

    float sums[rows * columns];
    [[unroll]] for (uint i = 0; i < rows * columns; i++) sums[i] = 0.0;
    for (uint b = 0; b < p.cols / 32; b += blocks) {
        load_weights(first_row, b);
        load_inputs(first_token, b);
        barrier();
        [[dont_unroll]] for (uint c = 0; c < blocks; c++) {
            uvec4 w[rows][2];
            vec4 scales[rows];
            [[unroll]] for (uint r = 0; r < rows; r++) {
                const uint at = (c * tile_rows + row + r * row_step) * 3;
                w[r] = uvec4[2](w_tile[at], w_tile[at + 1]);
                scales[r] = uintBitsToFloat(w_tile[at + 2]);
            }
            [[unroll]] for (uint t = 0; t < columns; t++) {
                const uint at = (c * tile_tokens + token + t * token_step) * 5;
                uvec4 digits[4];
                [[unroll]] for (uint i = 0; i < 4; i++) digits[i] = x_tile[at + i];
                const vec4 inputs = uintBitsToFloat(x_tile[at + 4]);
                [[unroll]] for (uint r = 0; r < rows; r++)
                    add_product(sums[t * rows + r], w[r], Scales32(scales[r].xy, scales[r].zw), digits, inputs);
            }
        }
        barrier();
    }
    [[unroll]] for (uint t = 0; t < columns; t++)
        [[unroll]] for (uint r = 0; r < rows; r++) {
            const uint at_row = first_row + row + r * row_step, at_token = first_token + token + t * token_step;
            if (at_row >= row_count || at_token >= end_token) continue;
            const uint at = y_start(at_token) + at_row;
            y[at] = accumulate != 0 ? y[at] + sums[t * rows + r] : sums[t * rows + r];
        }
}
