#version 460
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require
#include "params.h"
#include "context.glsl"

// Stores x[t][head], a key (after k-norm and RoPE) or a value, at position + t of the cache in the cache's type.
// TurboQuant: model/kv/turboquant.md is the definition, bit for bit. One workgroup per kv head of the slice (x) and token (y).
layout(local_size_x_id = 0) in;
layout(constant_id = 1) const uint head_dim = 128;
layout(constant_id = 2) const uint type = 2;
layout(constant_id = 3) const uint is_key = 1;
layout(push_constant) uniform Push { kv_append_params p; };
layout(binding = 0) buffer Cache { uint cache[]; };
layout(binding = 1) readonly buffer X { float x[]; };
layout(binding = 2) readonly buffer Weight { float weight[]; };
CONTEXT_AT(3);
#include "kv_types.glsl"
#include "half.glsl"
#include "rotate.glsl"

shared uint codes[head_dim];
shared uint largest_exponent;

#define EACH(i, n) for (uint i = gl_LocalInvocationID.x; i < (n); i += gl_WorkGroupSize.x)

// Divides channel by 2^e, e the largest exponent in it, flipping the rotation's signs; integers only. Elements below 2^-39
// become 0. Returns e; -128 when the whole vector counts as zero, 128 when a value is not finite.
int normalise_exponents() {
    if (gl_LocalInvocationID.x == 0) largest_exponent = 0;
    barrier();
    EACH(i, head_dim) atomicMax(largest_exponent, (floatBitsToUint(channel[i]) >> 23) & 255u);
    barrier();
    const int e = int(largest_exponent) - 127;
    const bool zero = e < -25 || e == 128;
    EACH(i, head_dim) {
        const uint bits = floatBitsToUint(channel[i]);
        const int exponent = int((bits >> 23) & 255u) - 127 - e;
        const uint flip = sign_of(p.signs, i) ? 0x80000000u : 0u;
        channel[i] = zero || exponent < -39 ? 0.0 : uintBitsToFloat(((bits & 0x807fffffu) | uint(exponent + 127) << 23) ^ flip);
    }
    barrier();
    return e == 128 ? 128 : zero ? -128 : e;
}

// Thresholds are powers of two apart for other head_dims.
bool reaches(float square, uint threshold, float norm2) {
    const uint scaled = head_dim == 64 ? threshold + (1u << 23) : head_dim == 256 ? threshold - (1u << 23) : threshold;
    precise float limit = uintBitsToFloat(scaled) * norm2;
    return square >= limit;
}

uint magnitude_index(float square, float norm2) {
    uint index = 0;
    if (type == KV_TQ4) {
        const uint thresholds[7] = uint[7](TQ4_THRESHOLDS);
        [[unroll]] for (uint i = 0; i < 7; i++) index += reaches(square, thresholds[i], norm2) ? 1u : 0u;
    } else if (type == KV_TQ3) {
        const uint thresholds[3] = uint[3](TQ3_THRESHOLDS);
        [[unroll]] for (uint i = 0; i < 3; i++) index += reaches(square, thresholds[i], norm2) ? 1u : 0u;
    } else {
        index = reaches(square, TQ2_THRESHOLDS, norm2) ? 1u : 0u;
    }
    return index;
}

uint packed_word(uint w) {
    const uint bits = turboquant_bits(type), magnitude_bits = bits - 1;
    uint word = 0;
    if (type == KV_TQ4) { // nibbles: sign and magnitude together
        for (uint j = 0; j < 8; j++) word |= codes[w * 8 + j] << (4 * j);
    } else { // a plane of magnitudes, then a plane of signs
        const uint per_word = 32 / magnitude_bits, magnitude_words = head_dim / per_word;
        if (w < magnitude_words)
            for (uint j = 0; j < per_word; j++) word |= (codes[w * per_word + j] & ((1u << magnitude_bits) - 1u)) << (magnitude_bits * j);
        else
            for (uint j = 0; j < 32; j++) word |= (codes[(w - magnitude_words) * 32 + j] >> magnitude_bits) << j;
    }
    return word;
}

// Two tokens share a word of scales, and other workgroups may be writing the other half.
void store_scale(uint at, uint half_word) {
    const uint shift = 16 * (at & 1);
    atomicAnd(cache[p.scales + (at >> 1)], ~(0xffffu << shift));
    atomicOr(cache[p.scales + (at >> 1)], half_word << shift);
}

void append_turboquant(uint at) {
    const int e = normalise_exponents();
    hadamard();
    EACH(i, head_dim) {
        precise float square = channel[i] * channel[i];
        terms[i] = square;
    }
    sum_terms();
    const float norm2 = terms[0];
    barrier();
    EACH(i, head_dim) {
        const float y = channel[i];
        precise float square = y * y;
        const uint index = norm2 == 0.0 ? 0 : magnitude_index(square, norm2);
        codes[i] = index | (y < 0.0 ? 1u << (turboquant_bits(type) - 1) : 0u);
        precise float product = abs(y) * magnitude_level(type, index);
        terms[i] = product;
    }
    sum_terms();
    EACH(w, code_words(type)) cache[p.codes + at * code_words(type) + w] = packed_word(w);
    if (gl_LocalInvocationID.x == 0) // a vector that is not finite keeps a NaN scale: it shows in every score
        store_scale(at, e == 128 ? 0x7e00u : norm2 == 0.0 ? 0u : quotient_half_bits(norm2, terms[0], e));
}

void main() {
    const uint t = gl_WorkGroupID.y;
    if (t >= tokens) return;
    const uint base = (t * p.heads + p.first_head + gl_WorkGroupID.x) * head_dim;
    EACH(i, head_dim) channel[i] = x[base + i];
    if (is_key != 0) {
        NORM_AND_ROPE(weight, p.eps, position + t);
    }
    barrier();
    const uint at = gl_WorkGroupID.x * p.capacity + position + t;
    if (is_turboquant(type)) {
        append_turboquant(at);
    } else {
        EACH(w, code_words(type)) cache[p.codes + at * code_words(type) + w] =
            type == KV_F32 ? floatBitsToUint(channel[w]) : half_bits(channel[2 * w]) | half_bits(channel[2 * w + 1]) << 16;
    }
}
