#version 440
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require
#include "params.h"
#include "context.glsl"

// h[t] = row ids[t] of the embedding, when this slice holds it. One workgroup per token.
// once per weight format
layout(local_size_x_id = 0) in;
layout(constant_id = 0) const uint workgroup = 1;
layout(constant_id = 1) const uint interleave = 1; // of the rows of the weights
layout(push_constant) uniform Push { embed_params p; };
layout(binding = 0) writeonly buffer H { vec4 h[]; };
#define WEIGHTS_BINDING 1
#include "weights.glsl"
layout(binding = 2) readonly buffer Ids { uint ids[]; };
CONTEXT_AT(3)

void main() {
    prepare_weights();
    const uint t = gl_WorkGroupID.x;
    if (t >= tokens) return;
    const uint row = ids[t] - p.first_row; // wraps when the row is in an earlier slice
    if (row >= p.rows) return;
    for (uint b = gl_LocalInvocationID.x; b < p.cols / 32; b += workgroup) {
        const uint start = row_start(row, p.cols);
        const Weights32 w = load32(start, load_header(start, p.cols, b >> 3), b >> 3, b & 7);
        [[unroll]] for (uint i = 0; i < 8; i++) h[t * (p.cols / 4) + b * 8 + i] = w.scale[i / 4] * w.level[i] - w.offset[i / 4];
    }
}
