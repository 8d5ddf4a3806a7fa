#version 440
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require
#include "params.h"

// y[t][first_row + r] (+)= W[r] . x[t] for a tile of `tile` tokens. One invocation computes `rows` rows: each weight is decoded
// once for the whole tile, and each x is read once for all rows. Rows of x and y past the last token exist and may hold anything;
// products with experts have no such rows.
// once per weight format
// once more for texels
layout(local_size_x_id = 0) in;
layout(constant_id = 0) const uint workgroup = 1;
layout(constant_id = 1) const uint tile = 8;
layout(constant_id = 2) const uint rows = 2;
layout(constant_id = 3) const uint accumulate = 0;
layout(constant_id = 4) const uint interleave = 1; // of the rows of the weights
layout(constant_id = 5) const uint experts = 0;    // 1: the matrix is a stack of experts' matrices (rows.glsl)
layout(push_constant) uniform Push { matmul_params p; };
layout(binding = 0) buffer Y { float y[]; };
#define WEIGHTS_BINDING 1
#include "weights.glsl"
READ_VECTORS(2, x)
#define ROWS_TILE tile
#include "rows.glsl"

void main() {
    prepare_weights();
    const uint stride = workgroup; // an invocation has rows first, first + stride, ...
    const uint first = gl_WorkGroupID.x * stride * rows + gl_LocalInvocationID.x;
    if (!find_tile()) return;

    uint starts[rows], inputs_at[tile];
    float sums[rows * tile];
    [[unroll]] for (uint r = 0; r < rows; r++) starts[r] = row_start(matrix_row + min(first + r * stride, row_count - 1), p.cols);
    [[unroll]] for (uint t = 0; t < tile; t++) inputs_at[t] = (experts == 0 ? first_token + t : x_row(first_token + t)) * (p.cols / 4);
    [[unroll]] for (uint i = 0; i < rows * tile; i++) sums[i] = 0.0;
    for (uint b = 0; b < p.cols / 32; b++) {
        Weights32 w[rows];
        [[unroll]] for (uint r = 0; r < rows; r++) w[r] = load32(starts[r], load_header(starts[r], p.cols, b >> 3), b >> 3, b & 7);
        [[unroll]] for (uint t = 0; t < tile; t++) {
            vec4 inputs[8];
            [[unroll]] for (uint i = 0; i < 8; i++) inputs[i] = uintBitsToFloat(x(inputs_at[t] + b * 8 + i));
            const vec2 input_sums = sums_of(inputs);
            [[unroll]] for (uint r = 0; r < rows; r++) sums[r * tile + t] += dot32(w[r], inputs, input_sums);
        }
    }
    [[unroll]] for (uint r = 0; r < rows; r++)
        [[unroll]] for (uint t = 0; t < tile; t++)
            if (first + r * stride < row_count && (experts == 0 || first_token + t < end_token)) {
                const uint at = y_start(first_token + t) + first + r * stride;
                y[at] = accumulate != 0 ? y[at] + sums[r * tile + t] : sums[r * tile + t];
            }
}
