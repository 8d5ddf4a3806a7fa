#version 440
#extension GL_GOOGLE_include_directive : require
#include "params.h"

// Encodes y[vector][head_dim] * 2^e[vector] in blocks of p.block_length: per vector, out_words holds head_dim codes, then head_dim
// decoded values, then head_dim / p.block_length words of scales. One workgroup per vector, one invocation per block.
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

const uint Q8_0 = 0, Q4_0 = 1;

uint encode(uint first, int e) {
    return p.codec == Q8_0   ? encode_q8_0(first, e)
           : p.codec == Q4_0 ? encode_q4_0(first, e)
                             : encode_affine(first, p.block_length, p.bits, e);
}

float decode(uint code, uint scales) {
    const float scale = scaled_half(scales & 0xffffu, 0);
    return p.codec == Q8_0   ? decode_q8_0(code, scale)
           : p.codec == Q4_0 ? decode_q4_0(code, scale)
                             : decode_affine(code, scale, scaled_half(scales >> 16, 0));
}

void main() {
    const uint blocks = head_dim / p.block_length, out_base = gl_WorkGroupID.x * (2 * head_dim + blocks);
    for (uint i = gl_LocalInvocationID.x; i < head_dim; i += 8) channel[i] = y[gl_WorkGroupID.x * head_dim + i];
    barrier();
    for (uint block = gl_LocalInvocationID.x; block < blocks; block += 8) {
        const uint first = block * p.block_length, scales = encode(first, exponents[gl_WorkGroupID.x]);
        out_words[out_base + 2 * head_dim + block] = scales;
        for (uint i = first; i < first + p.block_length; i++) {
            out_words[out_base + i] = codes[i];
            const float value = decode(codes[i], scales);
            out_words[out_base + head_dim + i] = value == 0.0 ? 0u : floatBitsToUint(value); // Vulkan promises no sign of zero
        }
    }
}
