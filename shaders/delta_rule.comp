#version 440
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require
#extension GL_KHR_shader_subgroup_shuffle : require
#include "params.h"
#include "context.glsl"

// The recurrence of a gated DeltaNet (model/config.h). For each value head, with its state M [128 keys][128 values], and for each
// row of its sequence, in order:
//   M = alpha M;  u = beta (v - M^T k);  M = M + k u^T;  y = M^T q.
// Rows have q, k (both normed), v and gates as delta_inputs.comp leaves them. Tokens that are pending come first (StateRange of
// model/pass_rows.h), and rows from its end on are as if the state had been copied for them. A slot's state M [value
// heads][128][128] is read and written once: per head and dispatch 128 KiB, and per row 1.5 KiB of q, k and v, which every
// workgroup of the head reads, 8 bytes of gates and 512 of y. The operations of a row are 7 * 128 * 128 = 115 k, one after the
// other for each element: what takes the time is how long a row takes, so that the next row is fetched meanwhile.
// Workgroups in x: heads, and groups of columns; in y: slots, by their spans in the pass or their first rows. `lanes` invocations
// share four columns, each of them with consecutive keys, in registers.
// once more for subgroups
layout(local_size_x_id = 0) in;
layout(constant_id = 0) const uint workgroup = 16;
layout(push_constant) uniform Push { delta_rule_params p; };
layout(binding = 0) buffer State { vec4 state[]; };
layout(binding = 1) writeonly buffer Y { vec4 y[]; };
layout(binding = 2) readonly buffer Rows { vec4 rows[]; };
CONTEXT_AT(3)
#include "recurrent.glsl"
#include "delta_rule.glsl"

const uint lanes = 16, keys = head_dim / lanes;

vec4 m[keys];
vec4 next_q[keys / 4], next_k[keys / 4], next_v;
vec2 next_gates;

#ifdef SUBGROUP
uint invocation() { return gl_SubgroupInvocationID; }
vec4 sum_over_lanes(vec4 own, uint which) {
    [[unroll]] for (uint distance = 1; distance < lanes; distance <<= 1) own += subgroupShuffleXor(own, distance);
    return own;
}
#else
shared vec4 exchanged[2 * workgroup];
uint invocation() { return gl_LocalInvocationID.x; }
// Two sums take turns, which: so one barrier each will do.
vec4 sum_over_lanes(vec4 own, uint which) {
    const uint first = which * workgroup + invocation() / lanes * lanes;
    exchanged[which * workgroup + invocation()] = own;
    barrier();
    vec4 sum = vec4(0.0);
    for (uint i = 0; i < lanes; i++) sum += exchanged[first + i];
    return sum;
}
#endif

// Rows alone are fetched ahead; tokens that are pending are few.
void fetch(uint t, Head head, uint lane, uint quad) {
    const uint at = p.inputs + t * p.channels, pair = t * p.value_heads + head.value;
    [[unroll]] for (uint i = 0; i < keys / 4; i++) {
        next_q[i] = rows[(at + query_at(head) + lane * keys) / 4 + i];
        next_k[i] = rows[(at + key_at(head) + lane * keys) / 4 + i];
    }
    next_v = rows[(at + value_at(head)) / 4 + quad];
    const vec4 two = rows[(p.gates + 2 * pair) / 4];
    next_gates = pair % 2 == 0 ? two.xy : two.zw;
}

// Fetches the key, value and gates of a pending token. Its query is not needed: its output belongs to an earlier pass.
void fetch_pending(uint slot_at, uint position, Head head, uint lane, uint quad) {
    const uint place = position % p.ring, at = slot_at + p.pending_outputs + place * p.channels,
               pair = place * p.value_heads + head.value;
    [[unroll]] for (uint i = 0; i < keys / 4; i++) next_k[i] = state[(at + key_at(head) + lane * keys) / 4 + i];
    next_v = state[(at + value_at(head)) / 4 + quad];
    const vec4 two = state[(slot_at + p.pending_gates + 2 * pair) / 4];
    next_gates = pair % 2 == 0 ? two.xy : two.zw;
}

// M = alpha M;  u = beta (v - M^T k);  M = M + k u^T
void update() {
    vec4 found = vec4(0.0);
    [[unroll]] for (uint i = 0; i < keys; i++) {
        m[i] *= next_gates.y;
        found = fma(m[i], vec4(next_k[i / 4][i % 4]), found);
    }
    const vec4 u = next_gates.x * (next_v - sum_over_lanes(found, 0));
    [[unroll]] for (uint i = 0; i < keys; i++) m[i] = fma(vec4(next_k[i / 4][i % 4]), u, m[i]);
    sum_over_lanes(found, 1); // as a row does: the sums take turns
}

void store(uint at) {
    [[unroll]] for (uint i = 0; i < keys; i++) state[at + i * (head_dim / 4)] = m[i];
}

void main() {
    const uint quads = workgroup / lanes, groups = head_dim / 4 / quads;
    const Head head = head_of(gl_WorkGroupID.x / groups);
    uint first, end;
    if (!rows_of(gl_WorkGroupID.y, first, end)) return;
    const uint lane = invocation() % lanes, quad = gl_WorkGroupID.x % groups * quads + invocation() / lanes;
    const uint at = (matrix_at(first, head) + lane * keys * head_dim) / 4 + quad;
    [[unroll]] for (uint i = 0; i < keys; i++) m[i] = state[at + i * (head_dim / 4)];

    const Tokens its = tokens_of(first, end);
    [[dont_unroll]] for (uint position = its.begin; position < its.position; position++) {
        fetch_pending(state_at(first), position, head, lane, quad);
        update();
        if (position + 1 == its.settled) store(at);
    }
    if (p.settle != 0) return;
    const uint settled = first + its.settled - its.position; // of rows, if it is more than `first`
    fetch(first, head, lane, quad);
    [[dont_unroll]] for (uint t = first; t < end; t++) {
        vec4 q[keys / 4], k[keys / 4];
        [[unroll]] for (uint i = 0; i < keys / 4; i++) {
            q[i] = next_q[i];
            k[i] = next_k[i];
        }
        const vec4 v = next_v;
        const float beta = next_gates.x, alpha = next_gates.y;
        fetch(min(t + 1, end - 1), head, lane, quad);

        vec4 found = vec4(0.0);
        [[unroll]] for (uint i = 0; i < keys; i++) {
            m[i] *= alpha;
            found = fma(m[i], vec4(k[i / 4][i % 4]), found);
        }
        const vec4 u = beta * (v - sum_over_lanes(found, 0));
        vec4 result = vec4(0.0);
        [[unroll]] for (uint i = 0; i < keys; i++) {
            m[i] = fma(vec4(k[i / 4][i % 4]), u, m[i]);
            result = fma(m[i], vec4(q[i / 4][i % 4]), result);
        }
        result = sum_over_lanes(result, 1);
        if (lane == 0) y[(t * p.value_heads + head.value) * (head_dim / 4) + quad] = result;
        if (t + 1 == settled) store(at);
    }
}
