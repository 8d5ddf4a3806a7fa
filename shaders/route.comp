#version 440
#extension GL_GOOGLE_include_directive : require
#include "params.h"
#include "context.glsl"
#include "routes.h"

// routes: the `used` experts of each token with the largest logits, of equal ones those with lower numbers first; and their
// weights: exp(logit) over the sum of the chosen ones' if p.normalise, else over the sum of all (softmax). One workgroup per
// token. A NaN counts as the largest logit, and makes all weights NaN, as an infinity does.
layout(local_size_x_id = 0) in;
layout(constant_id = 0) const uint workgroup = 1;
layout(push_constant) uniform Push { route_params p; };
layout(binding = 0) writeonly buffer Routes { uint routes[]; };
layout(binding = 1) readonly buffer Logits { float logits[]; };
CONTEXT_AT(2)

shared uint keys[MAX_EXPERTS];
shared float chosen[MAX_EXPERTS_USED];

// Returns an integer that is ordered as a logit is; -0 is 0.
uint key_of(uint bits) {
    if ((bits & 0x7fffffffu) > 0x7f800000u) return 0xffffffffu;
    if (bits == 0x80000000u) bits = 0;
    return (bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u;
}

void main() {
    const uint t = gl_WorkGroupID.x;
    if (t >= tokens) return;
    for (uint e = gl_LocalInvocationID.x; e < p.count; e += workgroup) keys[e] = key_of(floatBitsToUint(logits[t * p.count + e]));
    barrier();
    // An expert's rank is the number of experts before it: each rank occurs once, whatever the logits are.
    for (uint e = gl_LocalInvocationID.x; e < p.count; e += workgroup) {
        const uint key = keys[e];
        uint rank = 0;
        for (uint i = 0; i < p.count; i++) rank += keys[i] > key || (keys[i] == key && i < e) ? 1 : 0;
        if (rank >= p.used) continue;
        routes[ROUTES_HEADER_WORDS + t * p.used + rank] = e;
        chosen[rank] = logits[t * p.count + e];
    }
    barrier();
    if (gl_LocalInvocationID.x != 0) return;
    const bool finite = (floatBitsToUint(chosen[0]) & 0x7fffffffu) < 0x7f800000u;
    float sum = 0.0;
    if (p.normalise != 0)
        for (uint r = 0; r < p.used; r++) sum += exp(chosen[r] - chosen[0]);
    else
        for (uint e = 0; e < p.count; e++) sum += exp(logits[t * p.count + e] - chosen[0]);
    for (uint r = 0; r < p.used; r++) {
        const float weight = exp(chosen[r] - chosen[0]) / sum;
        routes[p.weights_at + t * p.used + r] = finite ? floatBitsToUint(weight) : 0x7fc00000u;
    }
    if (t != 0) return;
    routes[ROUTES_TILES] = 0;
    routes[ROUTES_PAIRS] = tokens * p.used;
}
