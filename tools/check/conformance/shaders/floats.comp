#version 440
#extension GL_GOOGLE_include_directive : require
#include "params.h"

// y[i] = the bits of one operation on a[i], b[i], c[i], as the codec and the other kernels write it. One invocation per element.
layout(local_size_x = 64) in;
layout(constant_id = 0) const uint op = 0; // FloatOp of tools/check/conformance/arithmetic.cpp
layout(push_constant) uniform Push { floats_params p; };
layout(binding = 0) writeonly buffer Y { uint y[]; };
layout(binding = 1) readonly buffer A { float a[]; };
layout(binding = 2) readonly buffer B { float b[]; };
layout(binding = 3) readonly buffer C { float c[]; };

void main() {
    const uint i = gl_GlobalInvocationID.x;
    if (i >= p.count) return;
    const float u = a[i], v = b[i], w = c[i];
    precise float r = 0.0;
    if (op == 0) r = u + v;
    if (op == 1) r = u - v;
    if (op == 2) r = u * v;
    if (op == 3) { // two roundings, never one
        precise float product = u * v;
        r = product + w;
    }
    if (op == 4) { // as above
        precise float product = u * v;
        r = w - product;
    }
    if (op == 5) r = (u < v ? 1.0 : 0.0) + (u >= v ? 2.0 : 0.0) + (u == v ? 4.0 : 0.0);
    if (op == 6) r = abs(u);
    if (op == 7) r = u / v;
    if (op == 8) r = inversesqrt(abs(u));
    if (op == 9) r = exp(u);
    if (op == 10) r = max(u, v);
    y[i] = floatBitsToUint(r);
}
