#version 460
#extension GL_GOOGLE_include_directive : require
#include "params.h"
#include "context.glsl"

// gate[t] = silu(gate[t]) * up[t], in place. One invocation per vec4; workgroups in y are tokens.
layout(local_size_x_id = 0) in;
layout(push_constant) uniform Push { swiglu_params p; };
layout(binding = 0) buffer Gate { vec4 gate[]; };
layout(binding = 1) readonly buffer Up { vec4 up[]; };
CONTEXT_AT(2);

void main() {
    if (gl_WorkGroupID.y >= tokens || gl_GlobalInvocationID.x >= p.cols / 4) return;
    const uint i = gl_WorkGroupID.y * (p.cols / 4) + gl_GlobalInvocationID.x;
    const vec4 g = gate[i];
    gate[i] = g / (1.0 + exp(-g)) * up[i];
}
