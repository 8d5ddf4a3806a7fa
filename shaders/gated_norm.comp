#version 440
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require
#extension GL_KHR_shader_subgroup_shuffle : require
#include "params.h"
#include "context.glsl"

// y[t][head] = w * y / sqrt(mean(y^2) + eps) * silu(z[t][head]), in place. One workgroup per head (x) and row (y).
// once more for subgroups
layout(local_size_x_id = 0) in;
layout(constant_id = 0) const uint workgroup = 1;
layout(constant_id = 1) const uint head_dim = 128;
layout(push_constant) uniform Push { gated_norm_params p; };
layout(binding = 0) buffer Y { float y[]; };
layout(binding = 1) readonly buffer Z { float z[]; };
layout(binding = 2) readonly buffer W { float w[]; };
CONTEXT_AT(3)
#include "head_vector.glsl"
#include "rms.glsl"

void main() {
    const uint t = gl_WorkGroupID.y;
    if (t >= tokens) return;
    const uint base = (t * p.heads + gl_WorkGroupID.x) * head_dim;
    EACH_CHANNEL(i) {
        OWN(channel, i) = y[base + i];
        OWN(terms, i) = OWN(channel, i) * OWN(channel, i);
    }
    sum_terms(1);
    const float scale = inverse_rms_of(terms[0] / float(head_dim) + p.eps);
    EACH_CHANNEL(i) {
        const float gate = z[base + i];
        y[base + i] = OWN(channel, i) * scale * w[i] * (gate / (1.0 + exp(-gate)));
    }
}
