#version 440
#extension GL_GOOGLE_include_directive : require
#include "params.h"

// Encodes y[vector][head_dim] * 2^e[vector] in blocks of 32: per vector, out_words holds head_dim codes, then head_dim
// decoded values, then head_dim / 32 words of scales. One workgroup per vector, one invocation per block.
layout(local_size_x = 8) in;
layout(constant_id = 0) const uint head_dim = 128;
layout(push_constant) uniform Push { blocks_codec_params p; };
layout(binding = 0) writeonly buffer Out { uint out_words[]; };
layout(binding = 1) readonly buffer Y { float y[]; };
layout(binding = 2) readonly buffer E { int exponents[]; };

shared float channel[head_dim];
shared uint codes[head_dim];

#include "../../shaders/half.glsl"
#include "../../shaders/exact.glsl"
#include "../../shaders/blocks_codec.glsl"

const uint Q8_0 = 0;

uint encode(uint first, int e) {
    return p.codec == Q8_0 ? encode_q8_0(first, e) : encode_q4_0(first, e);
}

float decode(uint code, uint scale) {
    const float value = half_value(scale);
    return p.codec == Q8_0 ? decode_q8_0(code, value) : decode_q4_0(code, value);
}

void main() {
    const uint blocks = head_dim / 32, out_base = gl_WorkGroupID.x * (2 * head_dim + blocks);
    for (uint i = gl_LocalInvocationID.x; i < head_dim; i += 8) channel[i] = y[gl_WorkGroupID.x * head_dim + i];
    barrier();
    for (uint block = gl_LocalInvocationID.x; block < blocks; block += 8) {
        const uint first = block * 32, scale = encode(first, exponents[gl_WorkGroupID.x]);
        out_words[out_base + 2 * head_dim + block] = scale;
        for (uint i = first; i < first + 32; i++) {
            out_words[out_base + i] = codes[i];
            const float value = decode(codes[i], scale);
            out_words[out_base + head_dim + i] = value == 0.0 ? 0u : floatBitsToUint(value); // Vulkan promises no sign of zero
        }
    }
}
