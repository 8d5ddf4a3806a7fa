#version 440
#extension GL_GOOGLE_include_directive : require
#include "params.h"

// y[to + i] = x[from + i] + add. One invocation per word.
layout(local_size_x = 64) in;
layout(push_constant) uniform Push { words_params p; };
layout(binding = 0) writeonly buffer Y { uint y[]; };
layout(binding = 1) readonly buffer X { uint x[]; };

void main() {
    const uint i = gl_GlobalInvocationID.x;
    if (i < p.count) y[p.to + i] = x[p.from + i] + p.add;
}
