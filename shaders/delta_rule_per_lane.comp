#version 440
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require
#include "params.h"
#include "context.glsl"

// delta_rule.comp for devices that are processors, whose invocations are the lanes of a vector: each has a column of the state, and
// nothing is exchanged. What all read alike, of a query or a key, is read once for all of them. The state stays in the buffer, since an
// array of 128 elements would be in memory, too: on llvmpipe a row alone took 3.7 ms with one and takes 2.1 ms, a row among 64 1.4 ms
// and now 1.7 ms.
// params: delta_rule_params
layout(local_size_x_id = 0) in;
layout(constant_id = 0) const uint workgroup = 1;
layout(push_constant) uniform Push { delta_rule_params p; };
layout(binding = 0) buffer State { float state[]; };
layout(binding = 1) writeonly buffer Y { float y[]; };
layout(binding = 2) readonly buffer Rows { vec4 rows[]; };
CONTEXT_AT(3)
#include "recurrent.glsl"
#include "delta_rule.glsl"

void main() {
    const uint groups = head_dim / workgroup;
    const Head head = head_of(gl_WorkGroupID.x / groups);
    uint first, end;
    if (!rows_of(gl_WorkGroupID.y, first, end)) return;
    const uint column = gl_WorkGroupID.x % groups * workgroup + gl_LocalInvocationID.x, at = matrix_at(first, head) + column;
    [[dont_unroll]] for (uint t = first; t < end; t++) {
        const uint q_at = query_at(t, head) / 4, k_at = key_at(t, head) / 4, v_at = value_at(t, head) + column;
        const vec2 gates = gates_of(t, head);
        float found = 0.0;
        [[dont_unroll]] for (uint key = 0; key < head_dim; key += 4) {
            const vec4 k = rows[k_at + key / 4];
            [[unroll]] for (uint i = 0; i < 4; i++) found = fma(state[at + (key + i) * head_dim] * gates.y, k[i], found);
        }
        const float u = gates.x * (rows[v_at / 4][v_at % 4] - found);
        float result = 0.0;
        [[dont_unroll]] for (uint key = 0; key < head_dim; key += 4) {
            const vec4 k = rows[k_at + key / 4], q = rows[q_at + key / 4];
            [[unroll]] for (uint i = 0; i < 4; i++) {
                const float m = fma(k[i], u, state[at + (key + i) * head_dim] * gates.y);
                state[at + (key + i) * head_dim] = m;
                result = fma(m, q[i], result);
            }
        }
        y[(t * p.value_heads + head.value) * head_dim + column] = result;
    }
}
