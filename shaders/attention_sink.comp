#version 440
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require
#include "params.h"
#include "context.glsl"
#include "kv_types.h"

// The partial (attention.glsl) of the first token of a row's sequence, whose vectors are kept in fp16 beside its codes. One workgroup
// per query head of the slice (x) and row (y).
layout(local_size_x_id = 0) in;
layout(constant_id = 0) const uint workgroup = 1;
layout(constant_id = 1) const uint head_dim = 128;
layout(push_constant) uniform Push { attention_sink_params p; };
layout(binding = 0) writeonly buffer Partials { float partials[]; };
layout(binding = 1) readonly buffer Q { float q[]; };
layout(binding = 2) readonly buffer Cache { uint cache[]; };
CONTEXT_AT(3)
#include "head_vector.glsl"
#include "half_value.glsl"

const uint part_size = head_dim + 2;

// Returns channel i of the vector that begins at word `first`.
float exact_value(uint first, uint i) { return half_value(cache[first + i / 2] >> (16 * (i & 1))) * WINDOW_INVERSE_UNIT; }

void main() {
    const uint t = gl_WorkGroupID.y;
    if (t >= tokens) return;
    const uint head = t * p.heads + p.first_head * p.group + gl_WorkGroupID.x, at = head * part_size;
    const uint vector = (page_of(row_slot(t), 0) * p.slice_heads + gl_WorkGroupID.x / p.group) * (head_dim / 2);
    EACH_CHANNEL(i) {
        OWN(terms, i) = q[head * head_dim + i] * exact_value(p.k_sinks + vector, i);
        partials[at + i] = exact_value(p.v_sinks + vector, i);
    }
    sum_terms(1);
    if (gl_LocalInvocationID.x != 0) return;
    partials[at + part_size - 2] = terms[0] + (p.pages == 0 ? 0.0 : q[p.page_scores + head * p.pages]);
    partials[at + part_size - 1] = 1.0;
}
