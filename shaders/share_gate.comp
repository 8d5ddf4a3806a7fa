#version 440
#extension GL_GOOGLE_include_directive : require
#include "params.h"
#include "context.glsl"

// y[t] = y[t] * sigmoid(w . x[t]): the share of the expert that all tokens have. One workgroup per token.
layout(local_size_x_id = 0) in;
layout(constant_id = 0) const uint workgroup = 1;
layout(push_constant) uniform Push { share_gate_params p; };
layout(binding = 0) buffer Y { vec4 y[]; };
layout(binding = 1) readonly buffer X { vec4 x[]; };
layout(binding = 2) readonly buffer W { vec4 w[]; };
CONTEXT_AT(3)
#include "reduce.glsl"

void main() {
    const uint t = gl_WorkGroupID.x;
    if (t >= tokens) return;
    float own = 0.0;
    for (uint i = gl_LocalInvocationID.x; i < p.x_cols / 4; i += workgroup) own += dot(w[i], x[t * (p.x_cols / 4) + i]);
    const float share = 1.0 / (1.0 + exp(-workgroup_sum(own)));
    for (uint i = gl_LocalInvocationID.x; i < p.cols / 4; i += workgroup) y[t * (p.cols / 4) + i] *= share;
}
