#version 440
#extension GL_GOOGLE_include_directive : require
#include "params.h"

// Word w of y = w * 2654435761: the data that is copied and read. One invocation per vector of four words.
layout(local_size_x = 128) in;
layout(push_constant) uniform Push { limits_fill_params p; };
layout(binding = 0) writeonly buffer Y { uvec4 y[]; };

void main() {
    const uint i = gl_GlobalInvocationID.x;
    if (i < p.vectors) y[i] = (uvec4(4 * i) + uvec4(0, 1, 2, 3)) * 2654435761u;
}
