#version 440
#extension GL_GOOGLE_include_directive : require
#include "params.h"
#include "routes.h"

// h[t] += the sum over t's experts, in the order of their ranks, of weight * y[pair]. One invocation per four elements;
// workgroups in y are tokens.
layout(local_size_x_id = 0) in;
layout(push_constant) uniform Push { add_experts_params p; };
layout(binding = 0) buffer H { vec4 h[]; };
layout(binding = 1) readonly buffer Y { vec4 y[]; };
layout(binding = 2) readonly buffer Routes { uint routes[]; };

void main() {
    const uint vectors = p.cols / 4, i = gl_GlobalInvocationID.x, first = gl_WorkGroupID.y * p.used;
    if (first >= routes[ROUTES_PAIRS] || i >= vectors) return;
    vec4 sum = vec4(0.0);
    for (uint r = 0; r < p.used; r++)
        sum += uintBitsToFloat(routes[p.weights_at + first + r]) * y[(first + r) * vectors + i];
    h[gl_WorkGroupID.y * vectors + i] += sum;
}
