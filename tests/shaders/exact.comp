#version 440
#extension GL_GOOGLE_include_directive : require
#include "params.h"
#include "../../shaders/half.glsl"
#include "../../shaders/exact.glsl"

// For each (n, d, s, e): n / d; the fp16 bits of n / d * 2^e and of sqrt(n / s) * 2^e; 0.
layout(local_size_x = 64) in;
layout(push_constant) uniform Push { exact_params p; };
layout(binding = 0) writeonly buffer Y { uvec4 y[]; };
layout(binding = 1) readonly buffer X { uvec4 x[]; };

void main() {
    const uint i = gl_GlobalInvocationID.x;
    if (i >= p.count) return;
    const float n = uintBitsToFloat(x[i].x), d = uintBitsToFloat(x[i].y);
    y[i] = uvec4(floatBitsToUint(divide(n, d)), quotient_half_bits(n, d, int(x[i].w)), sqrt_quotient_half_bits(n, x[i].z, int(x[i].w)), 0);
}
