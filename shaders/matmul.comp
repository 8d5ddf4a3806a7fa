#version 460
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require
#include "params.h"
#include "context.glsl"

// y[t][first_row + r] (+)= W[r] . x[t] for a tile of `tile` tokens. One invocation makes `rows` rows: each weight is decoded once
// for the whole tile, each x read once for all rows. Rows of x and y past the last token exist and may hold anything.
// once per weight format
layout(local_size_x_id = 0) in;
layout(constant_id = 1) const uint tile = 8;
layout(constant_id = 2) const uint rows = 2;
layout(constant_id = 3) const uint accumulate = 0;
layout(push_constant) uniform Push { matmul_params p; };
layout(binding = 0) buffer Y { float y[]; };
#define WEIGHTS_BINDING 1
#include "weights.glsl"
layout(binding = 2) readonly buffer X { vec4 x[]; };
CONTEXT_AT(3);

void main() {
    prepare_weights();
    const uint first = gl_GlobalInvocationID.x * rows, first_token = gl_WorkGroupID.y * tile;
    if (first_token >= tokens || first >= p.rows) return;

    float sums[rows * tile];
    [[unroll]] for (uint i = 0; i < rows * tile; i++) sums[i] = 0.0;
    for (uint b = 0; b < p.cols / 32; b++) {
        vec4 w[rows][8];
        [[unroll]] for (uint r = 0; r < rows; r++)
            load32(min(first + r, p.rows - 1) * row_vectors(p.cols), p.cols, b, w[r]); // past the end: the last row, never stored
        [[unroll]] for (uint t = 0; t < tile; t++) {
            vec4 products[rows];
            [[unroll]] for (uint r = 0; r < rows; r++) products[r] = vec4(0.0);
            [[unroll]] for (uint i = 0; i < 8; i++) {
                const vec4 inputs = x[(first_token + t) * (p.cols / 4) + b * 8 + i];
                [[unroll]] for (uint r = 0; r < rows; r++) products[r] += w[r][i] * inputs;
            }
            [[unroll]] for (uint r = 0; r < rows; r++)
                sums[r * tile + t] += (products[r].x + products[r].y) + (products[r].z + products[r].w);
        }
    }
    [[unroll]] for (uint r = 0; r < rows; r++)
        [[unroll]] for (uint t = 0; t < tile; t++)
            if (first + r < p.rows) {
                const uint at = (first_token + t) * p.y_cols + p.first_row + first + r;
                y[at] = accumulate != 0 ? y[at] + sums[r * tile + t] : sums[r * tile + t];
            }
}
