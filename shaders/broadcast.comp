#version 440
#extension GL_GOOGLE_include_directive : require
#include "params.h"
#include "context.glsl"

// y[t] = x for every token: the biases that products are added to. One invocation per four elements; workgroups in y are tokens.
layout(local_size_x_id = 0) in;
layout(push_constant) uniform Push { broadcast_params p; };
layout(binding = 0) writeonly buffer Y { vec4 y[]; };
layout(binding = 1) readonly buffer X { vec4 x[]; };
CONTEXT_AT(2)

void main() {
    const uint i = gl_GlobalInvocationID.x;
    if (gl_WorkGroupID.y >= tokens || i >= p.cols / 4) return;
    y[gl_WorkGroupID.y * (p.cols / 4) + i] = x[i];
}
