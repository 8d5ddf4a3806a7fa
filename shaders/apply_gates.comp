#version 440
#extension GL_GOOGLE_include_directive : require
#include "params.h"
#include "context.glsl"

// y[t] = y[t] * sigmoid(gate[t]). One invocation per four elements; workgroups in y are tokens.
layout(local_size_x_id = 0) in;
layout(push_constant) uniform Push { apply_gates_params p; };
layout(binding = 0) buffer Y { vec4 y[]; };
layout(binding = 1) readonly buffer Gate { vec4 gate[]; };
CONTEXT_AT(2)

void main() {
    if (gl_WorkGroupID.y >= tokens || gl_GlobalInvocationID.x >= p.cols / 4) return;
    const uint i = gl_WorkGroupID.y * (p.cols / 4) + gl_GlobalInvocationID.x;
    y[i] = y[i] / (1.0 + exp(-gate[i]));
}
