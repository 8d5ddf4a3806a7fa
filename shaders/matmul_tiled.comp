#version 440
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require
#include "params.h"

// matmul.comp's product for devices with fast shared memory (GPUs). One workgroup computes `tile_rows` rows of `tile_tokens`
// tokens: for 32 columns at a time it decodes each weight once and reads each x once, into shared memory, and every invocation
// multiplies `rows` of the one by `columns` of the other in registers. An invocation's rows and tokens are strided, so that
// neighbouring invocations access neighbouring elements of shared memory and of y.
// once per weight format
// params: matmul_params
layout(local_size_x_id = 0) in; // tile_rows / rows * tile_tokens / columns
layout(constant_id = 0) const uint workgroup = 1;
layout(constant_id = 1) const uint tile_rows = 128;
layout(constant_id = 2) const uint tile_tokens = 64;
layout(constant_id = 3) const uint rows = 8;
layout(constant_id = 4) const uint columns = 8; // tokens per invocation
layout(constant_id = 5) const uint accumulate = 0;
layout(constant_id = 6) const uint interleave = 1; // of the rows of the weights
layout(constant_id = 7) const uint experts = 0; // 1: the matrix is a stack of experts' matrices (rows.glsl)
layout(push_constant) uniform Push { matmul_params p; };
layout(binding = 0) buffer Y { float y[]; };
#define WEIGHTS_BINDING 1
#include "weights.glsl"
READ_VECTORS(2, x)
#define ROWS_TILE tile_tokens
#include "rows.glsl"

// A row or token takes 8 vectors of four columns and one of padding, so that eight invocations that read the same columns of
// eight rows access different banks.
const uint stride = 9;
shared vec4 w_tile[tile_rows * stride];
shared vec4 x_tile[tile_tokens * stride];

// Loads columns 32 b ... of the weights of rows first_row ...; past the end: the last row, never stored.
void load_weights(uint first_row, uint b) {
    for (uint r = gl_LocalInvocationID.x; r < tile_rows; r += workgroup) {
        const uint start = row_start(matrix_row + min(first_row + r, row_count - 1), p.cols);
        const Weights32 w = load32(start, load_header(start, p.cols, b >> 3), b >> 3, b & 7);
        [[unroll]] for (uint i = 0; i < 8; i++) w_tile[r * stride + i] = weights4(w, i);
    }
}

// Loads columns 32 b ... of x; past the end: the last token, never stored.
void load_inputs(uint first_token, uint b) {
    for (uint i = gl_LocalInvocationID.x; i < tile_tokens * 8; i += workgroup) {
        const uint t = x_row(first_token + i / 8);
        x_tile[i / 8 * stride + i % 8] = uintBitsToFloat(x(t * (p.cols / 4) + b * 8 + i % 8));
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
    for (uint b = 0; b < p.cols / 32; b++) {
        load_weights(first_row, b);
        load_inputs(first_token, b);
        barrier();
        for (uint i = 0; i < 8; i++) {
            vec4 w[rows];
            [[unroll]] for (uint r = 0; r < rows; r++) w[r] = w_tile[(row + r * row_step) * stride + i];
            [[unroll]] for (uint t = 0; t < columns; t++) {
                const vec4 v = x_tile[(token + t * token_step) * stride + i];
                [[unroll]] for (uint r = 0; r < rows; r++)
                    [[unroll]] for (uint k = 0; k < 4; k++) sums[t * rows + r] += w[r][k] * v[k];
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
