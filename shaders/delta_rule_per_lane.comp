#version 440
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require
#include "params.h"
#include "context.glsl"

// delta_rule.comp for devices that are processors, whose invocations are the lanes of a vector: each has a column of the state,
// and nothing is exchanged. What all read alike, of a query or a key, is read once for all of them. The state stays in the
// buffer, since an array of 128 elements would be in memory, too: on llvmpipe a row alone took 3.7 ms with one and takes 2.1 ms,
// a row among 64 1.4 ms and now 1.7 ms.
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

vec4 row_quad(uint i) { return rows[i]; }
vec4 state_quad(uint i) { return vec4(state[4 * i], state[4 * i + 1], state[4 * i + 2], state[4 * i + 3]); }

// A token; `element` is that of the state at `key`.
#define STEP(quad, element)                                                                                                      \
    {                                                                                                                            \
        const uint q_at = (place.row + query_at(head)) / 4, k_at = (place.row + key_at(head)) / 4,                               \
                   v_at = place.row + value_at(head) + column;                                                                   \
        const vec4 two = quad((place.gates + 2 * head.value) / 4);                                                               \
        const vec2 gates = (place.gates / 2 + head.value) % 2 == 0 ? two.xy : two.zw;                                            \
        float found = 0.0;                                                                                                       \
        [[dont_unroll]] for (uint first_key = 0; first_key < head_dim; first_key += 4) {                                         \
            const vec4 k = quad(k_at + first_key / 4);                                                                           \
            [[unroll]] for (uint i = 0; i < 4; i++) {                                                                            \
                const uint key = first_key + i;                                                                                  \
                found = fma(element * gates.y, k[i], found);                                                                     \
            }                                                                                                                    \
        }                                                                                                                        \
        const float u = gates.x * (quad(v_at / 4)[v_at % 4] - found);                                                            \
        [[dont_unroll]] for (uint first_key = 0; first_key < head_dim; first_key += 4) {                                         \
            const vec4 k = quad(k_at + first_key / 4), q = quad(q_at + first_key / 4);                                           \
            [[unroll]] for (uint i = 0; i < 4; i++) {                                                                            \
                const uint key = first_key + i;                                                                                  \
                element = fma(k[i], u, element * gates.y);                                                                       \
                result = fma(element, q[i], result);                                                                             \
            }                                                                                                                    \
        }                                                                                                                        \
    }

void store(Tokens its, uint position, Head head, uint column, float result) {
    y[((its.first + position - its.position) * p.value_heads + head.value) * head_dim + column] = result;
}

void main() {
    const uint groups = head_dim / workgroup;
    const Head head = head_of(gl_WorkGroupID.x / groups);
    uint first, end;
    if (!rows_of(gl_WorkGroupID.y, first, end)) return;
    const uint column = gl_WorkGroupID.x % groups * workgroup + gl_LocalInvocationID.x, at = matrix_at(first, head) + column;
    const Tokens its = tokens_of(first, end);
    [[dont_unroll]] for (uint position = its.begin; position < its.settled; position++) {
        const Place place = place_of(its, position);
        float result = 0.0;
        if (place.pending)
            STEP(state_quad, state[at + key * head_dim])
        else
            STEP(row_quad, state[at + key * head_dim])
        if (!place.pending) store(its, position, head, column, result);
    }
    if (its.settled == its.end) return;
    float m[head_dim]; // for rows whose updates stay pending
    [[dont_unroll]] for (uint key = 0; key < head_dim; key++) m[key] = state[at + key * head_dim];
    [[dont_unroll]] for (uint position = max(its.begin, its.settled); position < its.end; position++) {
        const Place place = place_of(its, position);
        float result = 0.0;
        if (place.pending)
            STEP(state_quad, m[key])
        else
            STEP(row_quad, m[key])
        if (!place.pending) store(its, position, head, column, result);
    }
}
