#version 440
#extension GL_GOOGLE_include_directive : require
#include "params.h"
#include "context.glsl"

// x[t][head] = the vector that is stored at the row's position, decoded as by decode() of model/kv/codec.h, bit for bit.
// One workgroup per kv head of the slice (x) and token (y).
layout(local_size_x_id = 0) in;
layout(constant_id = 0) const uint workgroup = 1;
layout(constant_id = 1) const uint head_dim = 128;
layout(constant_id = 2) const uint type = 0;
layout(constant_id = 3) const uint rotation = 0;
layout(push_constant) uniform Push { kv_decode_params p; };
layout(binding = 0) writeonly buffer X { float x[]; };
layout(binding = 1) readonly buffer Cache { uint cache[]; };
layout(binding = 2) readonly buffer Matrix { float matrix[]; };
CONTEXT_AT(3)
#define ROTATION_MATRIX matrix
#include "rotate.glsl"
#include "kv_levels.glsl"
#include "half.glsl"

uint code_at(uint base, uint i) {
    const uint low = KV_LOW_BITS(KV_BITS(type)), high = KV_BITS(type) - low;
    const uint second = is_nibble_trellis(type) ? (i / 32 * 4) | ((i / 8 + 3) & 3) : (head_dim * low + i * high) / 32;
    return code_of_words(type, cache[base + i * low / 32], is_nibble_trellis(type) || high != 0 ? cache[base + second] : 0, i);
}

// Returns number n of the vector's fp16 scales; not by unpackHalf2x16, which may flush denormals.
float scale_at(uint at, uint n) {
    const uint i = at * KV_SCALES(type, head_dim) + n;
    return half_value(cache[p.scales + (i >> 1)] >> (16 * (i & 1)) & 0xffffu);
}

float coded_value(uint base, uint at, uint i) {
    const uint n = KV_FAMILY(type) == KV_BLOCKS ? i / 32 : KV_UNEQUAL(type) != 0 ? i & 3 : 0;
    precise float value = code_level(type, code_at(base, i)) * scale_at(at, n);
    return value;
}

float plain_value(uint base, uint i) {
    if (KV_FAMILY(type) == KV_F32) return uintBitsToFloat(cache[base + i]);
    const uint half_word = cache[base + i / 2] >> (16 * (i & 1)) & 0xffffu;
    return KV_FAMILY(type) == KV_BF16 ? uintBitsToFloat(half_word << 16) : half_value(half_word);
}

void main() {
    const uint t = gl_WorkGroupID.y;
    if (t >= tokens) return;
    const uint position = row_position(t), at = (page_of(row_slot(t), position) * p.slice_heads + gl_WorkGroupID.x) * PAGE + position % PAGE;
    const uint base = p.codes + at * KV_WORDS(type, head_dim);
    if (!KV_IS_CODED(type))
        EACH(i, head_dim) channel[i] = plain_value(base, i);
    else
        EACH(i, head_dim) channel[i] = coded_value(base, at, i);
    if (KV_FAMILY(type) == KV_TURBOQUANT) rotate_back(rotation);
    EACH(i, head_dim) x[(t * p.heads + p.first_head + gl_WorkGroupID.x) * head_dim + i] = channel[i];
}
