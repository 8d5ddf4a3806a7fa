#version 440
#extension GL_GOOGLE_include_directive : require
#include "params.h"

// y = factor x. One invocation per element; the size of a workgroup is a specialisation constant.
layout(local_size_x_id = 0) in;
layout(push_constant) uniform Push { scale_params p; };
layout(binding = 0) writeonly buffer Y { float y[]; };
layout(binding = 1) readonly buffer X { float x[]; };

void main() {
    const uint i = gl_GlobalInvocationID.x;
    if (i < p.count) y[i] = p.factor * x[i];
}
