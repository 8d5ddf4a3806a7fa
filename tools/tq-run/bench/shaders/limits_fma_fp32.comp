#version 440
#extension GL_GOOGLE_include_directive : require
#include "params.h"

// y[invocation] = the sum of twelve chains a = a * factor + term that begin at 0 to 11, plus invocation % 4. Twelve: enough to
// hide the latency of a multiply-add, and few enough for the registers of a processor.
// params: limits_fma_params
layout(local_size_x = 128) in;
layout(push_constant) uniform Push { limits_fma_params p; };
layout(binding = 0) writeonly buffer Y { float y[]; };

void main() {
    const float first = float(gl_GlobalInvocationID.x % 4);
    const vec4 factor = vec4(p.factor), term = vec4(p.term);
    vec4 a = first + vec4(0, 1, 2, 3), b = a + 4, c = a + 8;
    for (uint i = 0; i < p.iterations; i += 2) {
        a = fma(a, factor, term);
        b = fma(b, factor, term);
        c = fma(c, factor, term);
        a = fma(a, factor, term);
        b = fma(b, factor, term);
        c = fma(c, factor, term);
    }
    const vec4 sum = a + b + c;
    y[gl_GlobalInvocationID.x] = sum.x + sum.y + sum.z + sum.w;
}
