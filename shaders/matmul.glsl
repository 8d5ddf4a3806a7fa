// y[t][first_row + r] (+)= W[r] . x[t] for a tile of `tile` tokens. One invocation per row: each weight is decoded once for the
// whole tile, and the tile's x is read uniformly. Rows of x and y past the last token exist and may hold anything.
#extension GL_EXT_control_flow_attributes : require
#include "params.h"
#include "context.glsl"

layout(local_size_x_id = 0) in;
layout(constant_id = 1) const uint tile = 8;
layout(constant_id = 2) const uint accumulate = 0;
layout(push_constant) uniform Push { matmul_params p; };
layout(binding = 0) buffer Y { float y[]; };
#define WEIGHTS_BINDING 1
#include "weights.glsl"
layout(binding = 2) readonly buffer X { vec4 x[]; };
CONTEXT_AT(3);

void main() {
    const uint row = gl_GlobalInvocationID.x, first = gl_WorkGroupID.y * tile;
    if (first >= tokens || row >= p.rows) return;

    float sums[tile];
    [[unroll]] for (uint t = 0; t < tile; t++) sums[t] = 0.0;
    const uint base = row * row_vectors(p.cols);
    for (uint b = 0; b < p.cols / 32; b++) {
        vec4 w[8];
        load32(base, p.cols, b, w);
        [[unroll]] for (uint t = 0; t < tile; t++) {
            vec4 products = vec4(0.0);
            [[unroll]] for (uint i = 0; i < 8; i++) products += w[i] * x[(first + t) * (p.cols / 4) + b * 8 + i];
            sums[t] += (products.x + products.y) + (products.z + products.w);
        }
    }
    [[unroll]] for (uint t = 0; t < tile; t++) {
        const uint at = (first + t) * p.y_cols + p.first_row + row;
        y[at] = accumulate != 0 ? y[at] + sums[t] : sums[t];
    }
}
