#version 460
#extension GL_GOOGLE_include_directive : require
#include "params.h"
#include "context.glsl"

// Stores x[t][head], a key (after k-norm and RoPE) or a value, at position + t of the cache in the cache's type.
// model/kv/turboquant.md is the definition, bit for bit. One workgroup per kv head of the slice (x) and token (y). Keys for a
// dense rotation come normed and turned (q_norm_rope), as values do: binding 2 is the matrix then.
layout(local_size_x_id = 0) in;
layout(constant_id = 1) const uint head_dim = 128;
layout(constant_id = 2) const uint type = 0;
layout(constant_id = 3) const uint is_key = 1; // 1: k-norm and RoPE first
layout(constant_id = 4) const uint rotation = 0;
layout(constant_id = 5) const uint scale_rule = 0;
layout(push_constant) uniform Push { kv_append_params p; };
layout(binding = 0) buffer Cache { uint cache[]; };
layout(binding = 1) readonly buffer X { float x[]; };
layout(binding = 2) readonly buffer Weight { float weight[]; };
CONTEXT_AT(3);
#define ROTATION_MATRIX weight
#include "rotate.glsl"
#include "kv_levels.glsl"
#include "half.glsl"
#include "exact.glsl"

shared uint codes[head_dim];
shared uint largest_bits;
shared uint square_levels;
shared uint level_scale;

#include "blocks_codec.glsl"
#include "turboquant.glsl"

const int zero_vector = -128, nonfinite_vector = 128;

// Divides channel by 2^e, e the largest exponent in it; integers only. Elements below 2^-39 become 0. Returns e; zero_vector when
// the whole vector counts as zero, nonfinite_vector when a value is not finite.
int normalise_exponents() {
    if (gl_LocalInvocationID.x == 0) largest_bits = 0;
    barrier();
    EACH(i, head_dim) atomicMax(largest_bits, (floatBitsToUint(channel[i]) >> 23) & 255u);
    barrier();
    const int e = int(largest_bits) - 127;
    const bool zero = e < -25 || e == 128;
    EACH(i, head_dim) {
        const uint bits = floatBitsToUint(channel[i]);
        const int exponent = int((bits >> 23) & 255u) - 127 - e;
        channel[i] = zero || exponent < -39 ? 0.0 : uintBitsToFloat((bits & 0x807fffffu) | uint(exponent + 127) << 23);
    }
    barrier();
    return e == 128 ? nonfinite_vector : zero ? zero_vector : e;
}

uint packed_word(uint w) {
    const uint bits = KV_BITS(type), low = KV_LOW_BITS(bits), high = bits - low, low_words = head_dim * low / 32;
    uint word = 0;
    if (w < low_words) {
        for (uint j = 0; j < 32 / low; j++) word |= (codes[w * (32 / low) + j] & ((1u << low) - 1u)) << (low * j);
    } else {
        const uint per_word = 32 / max(high, 1u);
        for (uint j = 0; j < per_word; j++) word |= (codes[(w - low_words) * per_word + j] >> low) << (high * j);
    }
    return word;
}

// Number n of the vector's fp16 scales. Two share a word, whose other half another workgroup may be writing.
void store_scale(uint at, uint n, uint half_word) {
    const uint i = at * KV_SCALES(type, head_dim) + n, shift = 16 * (i & 1);
    atomicAnd(cache[p.scales + (i >> 1)], ~(0xffffu << shift));
    atomicOr(cache[p.scales + (i >> 1)], half_word << shift);
}

void append_blocks(uint at, int e, bool finite) {
    const uint length = KV_FAMILY(type) == KV_BLOCKS ? 32 : min(KV_GROUP(type), head_dim);
    EACH(block, head_dim / length) {
        const uint first = block * length;
        if (KV_FAMILY(type) == KV_BLOCKS) {
            const uint scale = KV_BITS(type) == 8 ? encode_q8_0(first, e) : encode_q4_0(first, e);
            store_scale(at, block, finite ? scale : 0x7e00u);
        } else {
            const uint both = encode_affine(first, length, KV_BITS(type), e);
            store_scale(at, 2 * block, finite ? both & 0xffffu : 0x7e00u);
            store_scale(at, 2 * block + 1, finite ? both >> 16 : 0x7e00u);
        }
    }
    barrier();
}

void append_coded(uint at) {
    const int e = normalise_exponents();
    const bool empty = e == zero_vector || e == nonfinite_vector;
    if (KV_ROTATED(type) != 0) rotate(rotation, p.signs);
    if (KV_FAMILY(type) != KV_TURBOQUANT) {
        append_blocks(at, empty ? 0 : e, e != nonfinite_vector);
    } else {
        const uvec2 scales = encode_turboquant(empty ? 0 : e);
        if (gl_LocalInvocationID.x == 0) { // a vector that is not finite keeps a NaN scale: it shows in every score
            store_scale(at, 0, e == nonfinite_vector ? 0x7e00u : scales.x);
            if (KV_QJL(type) != 0) store_scale(at, 1, e == nonfinite_vector ? 0x7e00u : scales.y);
        }
    }
    EACH(w, KV_WORDS(type, head_dim)) cache[p.codes + at * KV_WORDS(type, head_dim) + w] = packed_word(w);
}

uint plain_word(uint w) {
    if (KV_FAMILY(type) == KV_F32) return floatBitsToUint(channel[w]);
    if (KV_FAMILY(type) == KV_F16) return half_bits(channel[2 * w]) | half_bits(channel[2 * w + 1]) << 16;
    return bfloat_bits(channel[2 * w]) | bfloat_bits(channel[2 * w + 1]) << 16;
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
    if (KV_IS_CODED(type))
        append_coded(at);
    else
        EACH(w, KV_WORDS(type, head_dim)) cache[p.codes + at * KV_WORDS(type, head_dim) + w] = plain_word(w);
}
