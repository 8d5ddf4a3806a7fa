#version 460
#extension GL_GOOGLE_include_directive : require
#include "params.h"
#include "context.glsl"

// y[t][head] = sum of the splits' accumulators over sum of their weights, rotated back when the values are stored rotated:
// y = s * (H acc) / head_dim. One workgroup per query head (x) and token (y).
layout(local_size_x_id = 0) in;
layout(constant_id = 1) const uint head_dim = 128;
layout(constant_id = 2) const uint rotated = 1;
layout(push_constant) uniform Push { attention_merge_params p; };
layout(binding = 0) writeonly buffer Y { float y[]; };
layout(binding = 1) readonly buffer Partials { float partials[]; };
CONTEXT_AT(2);
#include "rotate.glsl"

void main() {
    const uint t = gl_WorkGroupID.y;
    if (t >= tokens) return;
    const uint head = t * p.heads + gl_WorkGroupID.x, base = head * p.splits * (head_dim + 2);

    float m = -1e30, l = 0.0;
    for (uint s = 0; s < p.splits; s++) m = max(m, partials[base + s * (head_dim + 2) + head_dim]);
    for (uint s = 0; s < p.splits; s++) {
        const uint at = base + s * (head_dim + 2) + head_dim;
        l += exp(partials[at] - m) * partials[at + 1];
    }
    for (uint i = gl_LocalInvocationID.x; i < head_dim; i += gl_WorkGroupSize.x) {
        float sum = 0.0;
        for (uint s = 0; s < p.splits; s++) {
            const uint at = base + s * (head_dim + 2);
            sum += exp(partials[at + head_dim] - m) * partials[at + i];
        }
        channel[i] = sum / l;
    }
    if (rotated != 0) hadamard();
    for (uint i = gl_LocalInvocationID.x; i < head_dim; i += gl_WorkGroupSize.x)
        y[head * head_dim + i] = rotated == 0 ? channel[i] : (sign_of(p.signs, i) ? -channel[i] : channel[i]) / float(head_dim);
}
