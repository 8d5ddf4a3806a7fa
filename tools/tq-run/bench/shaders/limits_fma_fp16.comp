#version 460
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_shader_explicit_arithmetic_types_float16 : require
#include "params.h"

// The same as limits_fma_fp32, in fp16. For devices with Capabilities::float16.
// params: limits_fma_params
layout(local_size_x = 128) in;
layout(push_constant) uniform Push { limits_fma_params p; };
layout(binding = 0) writeonly buffer Y { float y[]; };

void main() {
    const float first = float(gl_GlobalInvocationID.x % 4);
    const f16vec4 factor = f16vec4(p.factor), term = f16vec4(p.term);
    f16vec4 a = f16vec4(first + vec4(0, 1, 2, 3)), b = a + float16_t(4), c = a + float16_t(8);
    for (uint i = 0; i < p.iterations; i += 2) {
        a = fma(a, factor, term);
        b = fma(b, factor, term);
        c = fma(c, factor, term);
        a = fma(a, factor, term);
        b = fma(b, factor, term);
        c = fma(c, factor, term);
    }
    const vec4 sum = vec4(a) + vec4(b) + vec4(c);
    y[gl_GlobalInvocationID.x] = sum.x + sum.y + sum.z + sum.w;
}
