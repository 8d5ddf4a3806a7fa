#version 440
#extension GL_GOOGLE_include_directive : require
#include "params.h"
#include "context.glsl"

// y[t] = silu(gate[t]) * up[t]. One invocation per four elements; workgroups in y are tokens.
layout(local_size_x_id = 0) in;
layout(push_constant) uniform Push { swiglu_params p; };
layout(binding = 0) writeonly buffer Y { vec4 y[]; };
layout(binding = 1) readonly buffer Gate { vec4 gate[]; };
layout(binding = 2) readonly buffer Up { vec4 up[]; };
CONTEXT_AT(3)

void main() {
    if (gl_WorkGroupID.y >= tokens || gl_GlobalInvocationID.x >= p.cols / 4) return;
    const uint i = gl_WorkGroupID.y * (p.cols / 4) + gl_GlobalInvocationID.x;
    vec4 g, u;
    if (p.pairs != 0) {
        const vec4 low = gate[2 * i], high = up[2 * i + 1];
        g = vec4(low.xz, high.xz);
        u = vec4(low.yw, high.yw);
    } else {
        g = gate[i];
        u = up[i];
    }
    y[i] = g / (1.0 + exp(-g)) * u;
}
