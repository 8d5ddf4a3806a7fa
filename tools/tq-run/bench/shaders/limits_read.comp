#version 440
#extension GL_GOOGLE_include_directive : require
#include "params.h"
#include "block.glsl"

// sums[invocation] = the sum of the words that it reads, modulo 2^32.
layout(local_size_x = 128) in;
layout(push_constant) uniform Push { limits_read_params p; };
layout(binding = 0) writeonly buffer Sums { uint sums[]; };
layout(binding = 1) readonly buffer X { uvec4 x[]; };

void main() {
    uvec4 sum = uvec4(0);
    EACH_VECTOR(i, p.vectors) sum += x[i];
    sums[gl_GlobalInvocationID.x] = sum.x + sum.y + sum.z + sum.w;
}
