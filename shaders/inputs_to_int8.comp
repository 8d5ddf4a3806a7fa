#version 440
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require
#include "params.h"
#include "context.glsl"

// y[t] = x[t] as two int8 digits, for products in integers (matmul_dot.comp). 32 columns, which belong to one invocation, have a
// common scale: x = scale * (128 * high + low), 0 <= low < 128, so that the largest is 127 * 128 + 127 times the scale. They are
// five vectors: 32 high digits, 32 low ones, the scale, and the sums of either half of the columns as they are now. Columns with
// an infinity or NaN have NaN as scale; those below 2^-100 are 0. One workgroup per row of x; a token has p.rows_per_token rows.
layout(local_size_x_id = 0) in;
layout(constant_id = 0) const uint workgroup = 1;
layout(push_constant) uniform Push { inputs_to_int8_params p; };
layout(binding = 0) writeonly buffer Y { uvec4 y[]; };
layout(binding = 1) readonly buffer X { vec4 x[]; };
CONTEXT_AT(2)

const float max_integer = 127 * 128 + 127;

// Returns four digits as bytes of a word.
uint bytes_of(ivec4 v) {
    const uvec4 b = uvec4(v) & 0xffu;
    return b.x | b.y << 8 | b.z << 16 | b.w << 24;
}

void main() {
    const uint t = gl_WorkGroupID.x, blocks = p.cols / 32;
    if (t >= tokens * p.rows_per_token) return;
    for (uint b = gl_LocalInvocationID.x; b < blocks; b += workgroup) {
        const uint at = t * blocks + b;
        vec4 v[8];
        uvec4 largest4 = uvec4(0);
        [[unroll]] for (uint i = 0; i < 8; i++) {
            v[i] = x[at * 8 + i];
            largest4 = max(largest4, floatBitsToUint(v[i]) & 0x7fffffffu);
        }
        const uint bits = max(max(largest4.x, largest4.y), max(largest4.z, largest4.w));
        const float largest = uintBitsToFloat(bits);
        const float to_integers = bits < 27u << 23 || bits >= 0x7f800000u ? 0.0 : max_integer / largest;
        uint high[8], low[8];
        ivec2 sums = ivec2(0);
        [[unroll]] for (uint i = 0; i < 8; i++) {
            const ivec4 n = clamp(ivec4(round(v[i] * to_integers)), -int(max_integer), int(max_integer));
            high[i] = bytes_of(n >> 7);
            low[i] = bytes_of(n & 127);
            sums[i / 4] += (n.x + n.y) + (n.z + n.w);
        }
        const float scale = uintBitsToFloat(bits >= 0x7f800000u ? 0x7fc00000u : floatBitsToUint(largest / max_integer));
        const vec2 halves = scale * vec2(sums);
        y[at * 5] = uvec4(high[0], high[1], high[2], high[3]);
        y[at * 5 + 1] = uvec4(high[4], high[5], high[6], high[7]);
        y[at * 5 + 2] = uvec4(low[0], low[1], low[2], low[3]);
        y[at * 5 + 3] = uvec4(low[4], low[5], low[6], low[7]);
        y[at * 5 + 4] = floatBitsToUint(vec4(scale, halves, halves.x + halves.y));
    }
}
