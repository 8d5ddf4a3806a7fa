#version 440
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require
#extension GL_KHR_shader_subgroup_shuffle : require
#include "params.h"
#include "context.glsl"

// y[t][head] = R^T (sum of the splits' accumulators) / (sum of their weights * gain), R the values' rotation, or the identity;
// the result is multiplied by the scales that the values were divided by. One workgroup per query head (x) and row (y).
// once more for subgroups
layout(local_size_x_id = 0) in;
layout(constant_id = 0) const uint workgroup = 1;
layout(constant_id = 1) const uint head_dim = 128;
layout(constant_id = 2) const uint rotation = 0;
layout(constant_id = 3) const uint window = 0; // 1: one partial more, for the window
layout(constant_id = 4) const uint scaled = 0; // channel scaling of values
layout(constant_id = 5) const uint sinks = 0;  // 1: one more, for the first tokens
layout(push_constant) uniform Push { attention_combine_params p; };
layout(binding = 0) writeonly buffer Y { float y[]; };
layout(binding = 1) readonly buffer Partials { float partials[]; };
CONTEXT_AT(2)
// A dense rotation, and after it what values were divided by: [kv heads][head_dim].
layout(binding = 3) readonly buffer Matrix { float matrix[]; };
#ifndef SUBGROUP
#define ROTATION_MATRIX matrix
#endif
#include "rotate.glsl"
#include "splits.glsl"

const uint partial_size = head_dim + 2;

// Returns the offset of split s's partial, or, from s = splits on, of the window's and the first tokens'.
uint partial_at(uint head, uint s, uint splits) {
    const uint more = s < splits + window ? p.window_partials : p.sink_partials;
    return s < splits ? (head * p.splits + s) * partial_size : more + head * partial_size;
}

// Operations over all invocations: the maximum, the sum, and a broadcast of invocation i's value.
#ifdef SUBGROUP
uint self() { return gl_SubgroupInvocationID; }
float max_of_all(float own) {
    for (uint s = width / 2; s > 0; s >>= 1) own = max(own, subgroupShuffleXor(own, s));
    return own;
}
float sum_of_all(float own) {
    for (uint s = width / 2; s > 0; s >>= 1) own += subgroupShuffleXor(own, s);
    return own;
}
float shared_by_all(float own) { return own; }
float of_invocation(uint i, float own) { return subgroupShuffle(own, i); }
#else
const uint width = workgroup;
shared float own_of[width];
uint self() { return gl_LocalInvocationID.x; }
float shared_by_all(float own) {
    barrier(); // the previous values may still be read
    own_of[self()] = own;
    barrier();
    return own;
}
float of_invocation(uint i, float own) { return own_of[i]; }
float max_of_all(float own) {
    shared_by_all(own);
    for (uint i = 0; i < width; i++) own = max(own, own_of[i]);
    return own;
}
float sum_of_all(float own) {
    shared_by_all(own);
    float sum = 0.0;
    for (uint i = 0; i < width; i++) sum += own_of[i];
    return sum;
}
#endif

struct Partial { float weight; uint at; };

// Adds n partials from number `first` on, whose weights are in invocation i and the following; n loads are in flight at a time.
#define ADD_PARTIALS(n, first, i, own)                                                                                  \
    {                                                                                                                   \
        Partial partial[n];                                                                                             \
        [[unroll]] for (uint j = 0; j < n; j++)                                                                         \
            partial[j] = Partial(of_invocation(i + j, own), partial_at(head, first + i + j, splits));                   \
        EACH_CHANNEL(c) {                                                                                               \
            [[unroll]] for (uint j = 0; j < n; j++) OWN(channel, c) += partial[j].weight * partials[partial[j].at + c]; \
        }                                                                                                               \
    }

void main() {
    const uint t = gl_WorkGroupID.y;
    if (t >= tokens) return;
    const uint head = t * p.heads + gl_WorkGroupID.x;
    const uint length = row_length(t), splits = split_count(p.splits, length, split_length(p.splits, length, p.split_step));
    const uint count = splits + window + sinks;

    float m = -1e30, l = 0.0;
    for (uint s = self(); s < count; s += width) m = max(m, partials[partial_at(head, s, splits) + partial_size - 2]);
    m = max_of_all(m);
    EACH_CHANNEL(i) OWN(channel, i) = 0.0;
    [[dont_unroll]] for (uint first = 0; first < count; first += width) {
        const uint n = min(width, count - first);
        float by = 0.0;
        if (self() < n) {
            const uint at = partial_at(head, first + self(), splits) + partial_size - 2;
            by = exp(partials[at] - m);
            l += by * partials[at + 1];
        }
        by = shared_by_all(by);
        uint i = 0;
        [[dont_unroll]] for (; i + 8 <= n; i += 8) ADD_PARTIALS(8, first, i, by)
        [[dont_unroll]] for (; i < n; i++) ADD_PARTIALS(1, first, i, by)
    }
    l = sum_of_all(l);
    EACH_CHANNEL(i) OWN(channel, i) /= l;
    rotate_back(rotation);
    const uint scales = VALUE_SCALES_AT(rotation) + gl_WorkGroupID.x / p.group * head_dim;
    EACH_CHANNEL(i) y[head * head_dim + i] = scaled != 0 ? OWN(channel, i) * matrix[scales + i] : OWN(channel, i);
}
