#version 440
#extension GL_GOOGLE_include_directive : require
#include "params.h"

// y[i] = one operation on the words a[i], b[i]. One invocation per element.
layout(local_size_x = 64) in;
layout(constant_id = 0) const uint op = 0; // IntegerOp of tools/check/conformance/arithmetic.cpp
layout(push_constant) uniform Push { integers_params p; };
layout(binding = 0) writeonly buffer Y { uint y[]; };
layout(binding = 1) readonly buffer A { uint a[]; };
layout(binding = 2) readonly buffer B { uint b[]; };

void main() {
    const uint i = gl_GlobalInvocationID.x;
    if (i >= p.count) return;
    const uint u = a[i], v = b[i];
    uint r = 0, high, low;
    if (op == 0) r = u + v;
    if (op == 1) r = u - v;
    if (op == 2) r = u * v;
    if (op == 3) r = u << (v & 31u);
    if (op == 4) r = u >> (v & 31u);
    if (op == 5) r = uint(int(u) >> int(v & 31u));
    if (op == 6) {
        umulExtended(u, v, high, low);
        r = high;
    }
    if (op == 7) {
        umulExtended(u, v, high, low);
        r = low;
    }
    if (op == 8) r = (u & ~v) | ((u ^ v) & 0xff00ffu);
    if (op == 9) r = (u < v ? 1u : 0u) + (int(u) < int(v) ? 2u : 0u);
    if (op == 10) r = v == 0u ? 0u : u / v + u % v;
    if (op == 11) r = floatBitsToUint(float(int(u) >> 8)); // exact
    if (op == 12) r = floatBitsToUint(unpackHalf2x16(u).x);
    if (op == 13) r = floatBitsToUint(unpackHalf2x16(u).y);
    y[i] = r;
}
