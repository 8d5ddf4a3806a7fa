#version 440
#extension GL_GOOGLE_include_directive : require
#include "params.h"
#include "context.glsl"

// y[t] = x[t] in fp16, times a power of two that is t's own (fp16_range.glsl), for products with cooperative matrices. One
// workgroup per row of x; a token has p.rows_per_token rows. From word p.largest on, y has the fp32 bits of each token's largest
// magnitude.
layout(local_size_x_id = 0) in;
layout(constant_id = 0) const uint workgroup = 1;
layout(push_constant) uniform Push { inputs_to_fp16_params p; };
layout(binding = 0) writeonly buffer Y { uvec2 y[]; };
layout(binding = 0) writeonly buffer YWords { uint y_words[]; };
layout(binding = 1) readonly buffer X { vec4 x[]; };
CONTEXT_AT(2)
#include "fp16_range.glsl"

shared uint largest;

void main() {
    const uint t = gl_WorkGroupID.x, vectors = p.cols / 4;
    if (t >= tokens * p.rows_per_token) return;
    if (gl_LocalInvocationID.x == 0) largest = 0;
    barrier();
    uvec4 max_bits = uvec4(0);
    for (uint i = gl_LocalInvocationID.x; i < vectors; i += workgroup)
        max_bits = max(max_bits, floatBitsToUint(x[t * vectors + i]) & 0x7fffffffu);
    atomicMax(largest, max(max(max_bits.x, max_bits.y), max(max_bits.z, max_bits.w)));
    barrier();
    const float factor = to_fp16_range(largest);
    for (uint i = gl_LocalInvocationID.x; i < vectors; i += workgroup) {
        const vec4 v = x[t * vectors + i] * factor;
        y[t * vectors + i] = uvec2(packHalf2x16(v.xy), packHalf2x16(v.zw));
    }
    if (gl_LocalInvocationID.x == 0) y_words[p.largest + t] = largest;
}
