#version 460
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require
#extension GL_KHR_shader_subgroup_shuffle : require
#include "params.h"
#include "context.glsl"

// y[t][head] = R^T (sum of the parts' accumulators) / (sum of their weights * gain), R the values' rotation, or nothing; QJL's part is
// projected back first. One workgroup per query head (x) and token (y).
// once more for subgroups
layout(local_size_x_id = 0) in;
layout(constant_id = 1) const uint head_dim = 128;
layout(constant_id = 2) const uint rotation = 0;
layout(constant_id = 3) const uint has_projection = 0; // parts hold a second accumulator, of the residuals' signs
layout(constant_id = 4) const uint recent = 0; // 1: one part more, of the recent tokens
layout(push_constant) uniform Push { attention_merge_params p; };
layout(binding = 0) writeonly buffer Y { float y[]; };
layout(binding = 1) readonly buffer Partials { float partials[]; };
CONTEXT_AT(2);
#ifndef SUBGROUP
layout(binding = 3) readonly buffer Matrix { float matrix[]; };
#define ROTATION_MATRIX matrix
#endif
#include "rotate.glsl"
#include "parts.glsl"

const uint part_size = (1 + has_projection) * head_dim + 2;

// Where part s of `parts` begins, or the one behind them, of the recent tokens.
uint part_at(uint head, uint s, uint parts) {
    return s < parts ? (head * p.splits + s) * part_size : p.recent_parts + head * part_size;
}

void main() {
    const uint t = gl_WorkGroupID.y;
    if (t >= tokens) return;
    const uint head = t * p.heads + gl_WorkGroupID.x;
    const uint parts = part_count(p.splits, position + tokens, part_length(p.splits, position + tokens, p.part_step));

    float m = -1e30;
    for (uint s = 0; s < parts + recent; s++) m = max(m, partials[part_at(head, s, parts) + part_size - 2]);
    EACH_CHANNEL(i) OWN(terms, i) = OWN(channel, i) = 0.0;
    float l = 0.0;
    for (uint s = 0; s < parts + recent; s++) {
        const uint at = part_at(head, s, parts);
        const float by = exp(partials[at + part_size - 2] - m);
        l += by * partials[at + part_size - 1];
        EACH_CHANNEL(i) {
            OWN(terms, i) += by * partials[at + i];
            if (has_projection != 0) OWN(channel, i) += by * partials[at + head_dim + i];
        }
    }
    if (has_projection != 0) {
        EACH_CHANNEL(i) OWN(channel, i) *= p.residual_scale / l;
        hadamard();
        flip(p.projection);
    }
    EACH_CHANNEL(i) OWN(channel, i) = OWN(terms, i) / l + (has_projection != 0 ? OWN(channel, i) : 0.0);
    rotate_back(rotation, p.signs);
    EACH_CHANNEL(i) y[head * head_dim + i] = OWN(channel, i);
}
