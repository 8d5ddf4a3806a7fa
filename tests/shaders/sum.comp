#version 440
#extension GL_GOOGLE_include_directive : require
#include "params.h"

// y = a + b + add[which] + bias, with two specialisation constants; b is seen as whole words of 16 bytes, and as elements.
layout(local_size_x = 128) in;
layout(constant_id = 0) const uint which = 0;
layout(constant_id = 1) const uint bias = 7;
layout(push_constant) uniform Push { sum_params p; };
layout(binding = 0) writeonly buffer Y { uint y[]; };
layout(binding = 1) readonly buffer A { uint a[]; };
layout(binding = 2) readonly buffer B { uint b[]; };
layout(binding = 2) readonly buffer B4 { uvec4 b4[]; };

void main() {
    const uint i = gl_GlobalInvocationID.x;
    if (i >= p.count) return;
    const uint word = i % 4 == 3 ? b[i] : b4[i / 4][i % 4];
    y[i] = a[i] + word + p.add[which] + bias;
}
