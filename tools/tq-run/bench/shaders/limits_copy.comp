#version 440
#extension GL_GOOGLE_include_directive : require
#include "params.h"
#include "block.glsl"

// y = x.
layout(local_size_x = 128) in;
layout(push_constant) uniform Push { limits_copy_params p; };
layout(binding = 0) writeonly buffer Y { uvec4 y[]; };
layout(binding = 1) readonly buffer X { uvec4 x[]; };

void main() {
    EACH_VECTOR(i, p.vectors) y[i] = x[i];
}
