#version 440
#extension GL_GOOGLE_include_directive : require
#include "params.h"

// Shared memory, barriers and atomics, with workgroups of any size. Workgroup g sums x[g * count .. (g + 1) * count - 1] in a
// tree of the codec's order into y[g], and takes the greatest of them into y[groups + g]; into the word y[2 * groups] all
// workgroups add, and of y[2 * groups + 1] they set or clear bits, as kv_append does with the scale of its token.
layout(local_size_x_id = 0) in;
layout(constant_id = 1) const uint max_terms = 256; // count is a power of two, at most this
layout(push_constant) uniform Push { workgroup_params p; };
layout(binding = 0) buffer Y { uint y[]; };
layout(binding = 1) readonly buffer X { uint x[]; };

shared uint terms[max_terms];
shared uint max_term;

#define EACH(i, n) for (uint i = gl_LocalInvocationID.x; i < (n); i += gl_WorkGroupSize.x)

void main() {
    const uint g = gl_WorkGroupID.x, groups = gl_NumWorkGroups.x;
    if (gl_LocalInvocationID.x == 0) max_term = 0;
    EACH(i, p.count) terms[i] = x[g * p.count + i];
    barrier();
    EACH(i, p.count) atomicMax(max_term, terms[i]);
    barrier();
    for (uint s = p.count / 2; s > 0; s /= 2) {
        EACH(i, s) terms[i] += terms[i + s];
        barrier();
    }
    if (gl_LocalInvocationID.x != 0) return;
    y[g] = terms[0];
    y[groups + g] = max_term;
    atomicAdd(y[2 * groups], terms[0]);
    if (g < 32) {
        atomicAnd(y[2 * groups + 1], ~(1u << g));
        atomicOr(y[2 * groups + 1], (max_term & 1u) << g);
    }
}
