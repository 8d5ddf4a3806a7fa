#version 440
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require
#extension GL_KHR_shader_subgroup_shuffle : require
#include "params.h"
#include "context.glsl"

// q[t][head] = scale * R(C(RoPE(w * q / rms(q)))), in place; C is the channel scaling of the head, where there is any, and R
// the keys' rotation, or the identity when they are not rotated. Where the keys have QJL's bit, q[projected + ...] is the
// projection of that, times projected_scale. One workgroup per head (x) and token (y).
// once more for subgroups
layout(local_size_x_id = 0) in;
layout(constant_id = 0) const uint workgroup = 1;
layout(constant_id = 1) const uint head_dim = 128;
layout(constant_id = 2) const uint rotation = 0;
layout(constant_id = 3) const uint has_projection = 0;
layout(constant_id = 4) const uint conditioned = 0;
layout(constant_id = 5) const uint rotary = 128;
layout(push_constant) uniform Push { q_norm_rope_params p; };
layout(binding = 0) buffer Q { float q[]; };
layout(binding = 1) readonly buffer Weight { float weight[]; };
CONTEXT_AT(2)
#ifndef SUBGROUP
layout(binding = 3) readonly buffer Matrix { float matrix[]; };
#define ROTATION_MATRIX matrix
#endif
#include "rotate.glsl"

void main() {
    const uint t = gl_WorkGroupID.y;
    if (t >= tokens) return;
    const uint base = (t * p.heads + gl_WorkGroupID.x) * head_dim;
    EACH_CHANNEL(i) OWN(channel, i) = q[base + i];
    NORM_AND_ROPE(weight, p.eps, row_position(t));
    if (conditioned != 0) {
        CONDITION(weight, gl_WorkGroupID.x / p.group)
    }
    rotate(rotation);
    EACH_CHANNEL(i) q[base + i] = OWN(channel, i) * p.scale;
    if (has_projection != 0) {
        FLIP(p.projection);
        hadamard();
        EACH_CHANNEL(i) q[p.projected + base + i] = OWN(channel, i) * p.projected_scale;
    }
}
