#version 440
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require
#extension GL_KHR_shader_subgroup_shuffle : require
#include "params.h"
#include "context.glsl"

// q[t][head] = scale * R(C(RoPE(w * q / rms(q)))), in place; C is the channel scaling of the head, if there is any, and R
// the keys' rotation, or the identity when they are not rotated. One workgroup per head (x) and token (y).
// If the mean of a page was subtracted from its keys, a page score is page_scale times the query's product with it after RoPE. A
// mean turns with the first position of its page, so that the product is a sum over the pairs of channels of that position's
// cosines and sines; channels that do not turn are left out, since their products are the same for all pages.
// once more for subgroups
layout(local_size_x_id = 0) in;
layout(constant_id = 0) const uint workgroup = 1;
layout(constant_id = 1) const uint head_dim = 128;
layout(constant_id = 2) const uint rotation = 0;
layout(constant_id = 3) const uint conditioned = 0;
layout(constant_id = 4) const uint rotary = 128;
layout(push_constant) uniform Push { q_norm_rope_params p; };
layout(binding = 0) buffer Q { float q[]; };
layout(binding = 1) readonly buffer Weight { float weight[]; };
CONTEXT_AT(2)
#ifndef SUBGROUP
layout(binding = 3) readonly buffer Matrix { float matrix[]; };
#define ROTATION_MATRIX matrix
#endif
#include "rotate.glsl"

const uint at_once = 8; // loads in flight of an invocation; rotary is a multiple of 16
shared float products[rotary]; // [rotary / 2][2]: factors of the cosine and the sine of each pair in a page score

void store_page_scores(uint t, uint kv_head) {
    EACH_BELOW(i, rotary / 2) {
        const uint mean = FACTORS_AT(kv_head) + head_dim + i;
        const vec2 m = vec2(weight[mean], weight[mean + rotary / 2]), x = vec2(OWN(channel, i), OWN_AT(channel, i, rotary / 2));
        products[2 * i] = p.page_scale * (x.x * m.x + x.y * m.y);
        products[2 * i + 1] = p.page_scale * (x.y * m.x - x.x * m.y);
    }
    barrier();
    for (uint page = gl_LocalInvocationID.x; page <= row_position(t) / PAGE; page += workgroup) {
        float sum = 0.0;
        [[dont_unroll]] for (uint first = 0; first < rotary / 2; first += at_once) {
            vec2 turn[at_once];
            [[unroll]] for (uint i = 0; i < at_once; i++) turn[i] = page_turn(first + i, page);
            [[unroll]] for (uint i = 0; i < at_once; i++)
                sum += products[2 * (first + i)] * turn[i].x + products[2 * (first + i) + 1] * turn[i].y;
        }
        q[p.page_scores + (t * p.heads + gl_WorkGroupID.x) * p.pages + page] = sum;
    }
}

void main() {
    const uint t = gl_WorkGroupID.y;
    if (t >= tokens) return;
    const uint base = (t * p.heads + gl_WorkGroupID.x) * head_dim;
    EACH_CHANNEL(i) OWN(channel, i) = q[base + i];
    NORM_AND_ROPE(weight, p.eps, row_position(t));
    if (conditioned == CONDITION_QUERIES && p.pages != 0) store_page_scores(t, gl_WorkGroupID.x / p.group);
    if (conditioned == CONDITION_KEYS) {
        CONDITION_KEY(weight, gl_WorkGroupID.x, row_position(t))
    }
    if (conditioned == CONDITION_QUERIES) {
        CONDITION_QUERY(weight, gl_WorkGroupID.x / p.group)
    }
    rotate(rotation);
    EACH_CHANNEL(i) q[base + i] = OWN(channel, i) * p.scale;
}
