#version 460
#extension GL_GOOGLE_include_directive : require
#include "params.h"
#include "context.glsl"

// q[t][head] = scale * R(RoPE(w * q / rms(q))), in place; R is the keys' rotation, or nothing when they are not rotated.
// One workgroup per head (x) and token (y).
layout(local_size_x_id = 0) in;
layout(constant_id = 1) const uint head_dim = 128;
layout(constant_id = 2) const uint rotate = 1;
layout(push_constant) uniform Push { q_norm_rope_params p; };
layout(binding = 0) buffer Q { float q[]; };
layout(binding = 1) readonly buffer Weight { float weight[]; };
CONTEXT_AT(2);
#include "rotate.glsl"

void main() {
    const uint t = gl_WorkGroupID.y;
    if (t >= tokens) return;
    const uint base = (t * p.heads + gl_WorkGroupID.x) * head_dim;
    for (uint i = gl_LocalInvocationID.x; i < head_dim; i += gl_WorkGroupSize.x) channel[i] = q[base + i];
    NORM_AND_ROPE(weight, p.eps, position + t);
    if (rotate != 0) {
        for (uint i = gl_LocalInvocationID.x; i < head_dim; i += gl_WorkGroupSize.x)
            if (sign_of(p.signs, i)) channel[i] = -channel[i];
        hadamard();
    }
    for (uint i = gl_LocalInvocationID.x; i < head_dim; i += gl_WorkGroupSize.x) q[base + i] = channel[i] * p.scale;
}
