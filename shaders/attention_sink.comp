#version 440
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require
#include "params.h"
#include "context.glsl"
#include "kv_types.h"

// The partial (attention.glsl) of the first tokens of a row's sequence, whose vectors are kept in fp16 beside their codes. One
// workgroup per query head of the slice (x) and row (y).
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

const uint partial_size = head_dim + 2;

// Returns channel i of the vector that begins at word `first`.
float exact_value(uint first, uint i) { return half_value(cache[first + i / 2] >> (16 * (i & 1))) * WINDOW_INVERSE_UNIT; }

void main() {
    const uint t = gl_WorkGroupID.y;
    if (t >= tokens) return;
    const uint head = t * p.heads + p.first_head * p.group + gl_WorkGroupID.x, at = head * partial_size;
    const uint first = (page_of(row_slot(t), 0) * p.slice_heads + gl_WorkGroupID.x / p.group) * FIRST_TOKENS * (head_dim / 2);
    const uint second = first + head_dim / 2;
    // A row at position 0 does not see the second token, whose vectors may never have been written.
    const bool sees_second = row_position(t) > 0;
    EACH_CHANNEL(i) OWN(terms, i) = q[head * head_dim + i] * exact_value(p.k_sinks + first, i);
    sum_terms(1);
    const float added = p.pages == 0 ? 0.0 : q[p.page_scores + head * p.pages], first_score = terms[0] + added;
    float second_score = first_score;
    barrier();
    if (sees_second) { // the same for all invocations
        EACH_CHANNEL(i) OWN(terms, i) = q[head * head_dim + i] * exact_value(p.k_sinks + second, i);
        sum_terms(1);
        second_score = terms[0] + added;
    }
    const float largest = max(first_score, second_score), first_weight = exp(first_score - largest),
                second_weight = sees_second ? exp(second_score - largest) : 0.0;
    EACH_CHANNEL(i) {
        float sum = first_weight * exact_value(p.v_sinks + first, i);
        if (sees_second) sum += second_weight * exact_value(p.v_sinks + second, i);
        partials[at + i] = sum;
    }
    if (gl_LocalInvocationID.x != 0) return;
    partials[at + partial_size - 2] = largest;
    partials[at + partial_size - 1] = first_weight + second_weight;
}
