#version 460
#extension GL_GOOGLE_include_directive : require
#include "params.h"
#include "context.glsl"

// y[t][head] = R^T (sum of the splits' accumulators) / (sum of their weights * gain), R the values' rotation, or nothing; QJL's
// part is projected back first. One workgroup per query head (x) and token (y).
layout(local_size_x_id = 0) in;
layout(constant_id = 1) const uint head_dim = 128;
layout(constant_id = 2) const uint rotation = 0;
layout(constant_id = 3) const uint has_projection = 0; // parts hold a second accumulator, of the residuals' signs
layout(push_constant) uniform Push { attention_merge_params p; };
layout(binding = 0) writeonly buffer Y { float y[]; };
layout(binding = 1) readonly buffer Partials { float partials[]; };
CONTEXT_AT(2);
layout(binding = 3) readonly buffer Matrix { float matrix[]; };
#define ROTATION_MATRIX matrix
#include "rotate.glsl"

const uint part_size = (1 + has_projection) * head_dim + 2;

// Element `offset` of the splits' parts, each weighted as its maximum m says.
float sum_of_parts(uint base, uint offset, float m) {
    float sum = 0.0;
    for (uint s = 0; s < p.splits; s++) {
        const uint at = base + s * part_size;
        sum += exp(partials[at + part_size - 2] - m) * partials[at + offset];
    }
    return sum;
}

void main() {
    const uint t = gl_WorkGroupID.y;
    if (t >= tokens) return;
    const uint head = t * p.heads + gl_WorkGroupID.x, base = head * p.splits * part_size;

    float m = -1e30;
    for (uint s = 0; s < p.splits; s++) m = max(m, partials[base + s * part_size + part_size - 2]);
    const float l = sum_of_parts(base, part_size - 1, m);
    if (has_projection != 0) {
        EACH(i, head_dim) channel[i] = sum_of_parts(base, head_dim + i, m) * p.residual_scale / l;
        hadamard();
        flip(p.projection);
    }
    EACH(i, head_dim) channel[i] = sum_of_parts(base, i, m) / l + (has_projection != 0 ? channel[i] : 0.0);
    rotate_back(rotation, p.signs);
    EACH(i, head_dim) y[head * head_dim + i] = channel[i];
}
