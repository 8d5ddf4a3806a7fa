#version 440
#extension GL_GOOGLE_include_directive : require
#include "params.h"
#include "context.glsl"

// q[t][head] and gate[t][head] = the halves of both[t][head]. One invocation per four elements of q; workgroups in y are tokens.
layout(local_size_x_id = 0) in;
layout(push_constant) uniform Push { split_gates_params p; };
layout(binding = 0) writeonly buffer Q { vec4 q[]; };
layout(binding = 1) writeonly buffer Gate { vec4 gate[]; };
layout(binding = 2) readonly buffer Both { vec4 both[]; };
CONTEXT_AT(3)

void main() {
    if (gl_WorkGroupID.y >= tokens || gl_GlobalInvocationID.x >= p.cols / 4) return;
    const uint i = gl_WorkGroupID.y * (p.cols / 4) + gl_GlobalInvocationID.x, half_head = p.head_dim / 4;
    const uint at = i / half_head * 2 * half_head + i % half_head;
    q[i] = both[at];
    gate[i] = both[at + half_head];
}
