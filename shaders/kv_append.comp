#version 440
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require
#extension GL_KHR_shader_subgroup_arithmetic : require
#extension GL_KHR_shader_subgroup_shuffle : require
#include "params.h"
#include "context.glsl"

// Stores x[t][head], a key (after k-norm, RoPE, the page's mean and channel scaling) or a value, at the row's position of its
// slot, in the cache's type. model/kv/turboquant.md defines it, bit for bit. One workgroup per kv head of the slice (x) and token
// (y). For a dense rotation, q_norm_rope has already applied norm, RoPE, mean and channel scaling to keys, so that they need no
// weights: binding 2 is the matrix then. For values it is the matrix of a dense rotation, and after it their scales, [kv
// heads][head_dim], powers of two. The subgroup variant is for types without blocks, and for rotations that are not dense; the
// trellis variant is only for trellis types, whose search takes drivers too long to compile for the others.
// What keeps the bits. Each operation between the input and the codes is one that Vulkan rounds exactly (+, -, *), is marked
// precise, and has a fixed order: sums over channels are trees (turboquant.md), in the subgroup variant, too. Only integers are
// reduced in any order (workgroup_max, workgroup_add). Divisions and roots are in integers (exact.glsl). The steps before, the
// product that gave x and k-norm's root, may differ between devices in the last bits.
// once more for subgroups
// once more for trellises
layout(local_size_x_id = 0) in;
layout(constant_id = 0) const uint workgroup = 1;
layout(constant_id = 1) const uint head_dim = 128;
layout(constant_id = 2) const uint type = 0;
layout(constant_id = 3) const uint is_key = 1; // 1: k-norm and RoPE first
layout(constant_id = 4) const uint rotation = 0;
layout(constant_id = 5) const uint scale_rule = 0;
layout(constant_id = 6) const uint conditioned = 0; // the mean and channel scaling
layout(constant_id = 7) const uint window = 0; // WINDOW_NONE, _BLOCK or _RING: fp16 numbers in the space of the codes
layout(constant_id = 8) const uint rotary = 128;
layout(push_constant) uniform Push { kv_append_params p; };
layout(binding = 0) buffer Cache { uint cache[]; };
layout(binding = 1) readonly buffer X { float x[]; };
layout(binding = 2) readonly buffer Weight { float weight[]; };
CONTEXT_AT(3)
#ifndef SUBGROUP
#define ROTATION_MATRIX weight
#endif
#include "rotate.glsl"
#include "kv_levels.glsl"
#include "half.glsl"
#include "exact.glsl"

shared uint codes[head_dim];

// Reduce every invocation's number; on integers, so that the order does not matter. All invocations call these.
#ifdef SUBGROUP
uint workgroup_max(uint own) { return subgroupMax(own); }
uint workgroup_add(uint own) { return subgroupAdd(own); }
#else
shared uint combined;
uint workgroup_max(uint own) {
    barrier(); // the previous result may still be read
    if (gl_LocalInvocationID.x == 0) combined = 0;
    barrier();
    atomicMax(combined, own);
    barrier();
    return combined;
}
uint workgroup_add(uint own) {
    barrier();
    if (gl_LocalInvocationID.x == 0) combined = 0;
    barrier();
    atomicAdd(combined, own);
    barrier();
    return combined;
}
#endif

#if !defined(SUBGROUP) && !defined(TRELLIS)
#define BLOCKS
#include "blocks_codec.glsl"
#endif
// Stores number n of the vector's fp16 scales. Two share a word, whose other half another workgroup may be writing.
void store_scale(uint at, uint n, uint half_word) {
    const uint i = at * KV_SCALES(type, head_dim) + n, shift = 16 * (i & 1);
    atomicAnd(cache[p.scales + (i >> 1)], ~(0xffffu << shift));
    atomicOr(cache[p.scales + (i >> 1)], half_word << shift);
}

#include "turboquant.glsl"

const int zero_vector = -128, nonfinite_vector = 128;

// Divides channel by 2^e, e the largest exponent in it; integers only. Elements below 2^-39 become 0. Returns e; zero_vector
// when the whole vector counts as zero, nonfinite_vector when a value is not finite.
int normalise_exponents() {
    uint own_largest = 0;
    EACH_CHANNEL(i) own_largest = max(own_largest, (floatBitsToUint(OWN(channel, i)) >> 23) & 255u);
    const int e = int(workgroup_max(own_largest)) - 127;
    const bool zero = e < -25 || e == 128;
    EACH_CHANNEL(i) {
        const uint bits = floatBitsToUint(OWN(channel, i));
        const int exponent = int((bits >> 23) & 255u) - 127 - e;
        OWN(channel, i) = zero || exponent < -39 ? 0.0 : uintBitsToFloat((bits & 0x807fffffu) | uint(exponent + 127) << 23);
    }
    channel_barrier();
    return e == 128 ? nonfinite_vector : zero ? zero_vector : e;
}

// Returns the code of channel i as the planes have it; of unequal bits, its part of the number that it shares with a neighbour.
uint planes_code(uint i) {
    if (KV_UNEQUAL(type) == 0) return codes[i];
    const uint bits = KV_BITS(type), low = KV_LOW_BITS(bits), high = bits - low;
    const uint both = codes[i & ~1u] | codes[i | 1] << KV_QUARTER_BITS(bits, i & 2), second = i & 1;
    const uint below = both >> (low * second) & ((1u << low) - 1u), above = both >> (2 * low + high * second) & ((1u << high) - 1u);
    return below | above << low;
}

uint packed_word(uint w) {
    const uint bits = KV_BITS(type), low = KV_LOW_BITS(bits), high = bits - low, low_words = head_dim * low / 32;
    uint word = 0;
    if (w < low_words) {
        for (uint j = 0; j < 32 / low; j++) word |= (planes_code(w * (32 / low) + j) & ((1u << low) - 1u)) << (low * j);
    } else {
        const uint per_word = 32 / max(high, 1u);
        for (uint j = 0; j < per_word; j++) word |= (planes_code((w - low_words) * per_word + j) >> low) << (high * j);
    }
    return word;
}

#ifdef BLOCKS
void append_blocks(uint at, int e, bool finite) {
    EACH(block, head_dim / 32) {
        const uint scale = KV_BITS(type) == 8 ? encode_q8_0(block * 32, e) : encode_q4_0(block * 32, e);
        store_scale(at, block, finite ? scale : 0x7e00u);
    }
    barrier();
}
#endif

void append_coded(uint at) {
    const int e = normalise_exponents();
    const bool empty = e == zero_vector || e == nonfinite_vector;
#ifdef BLOCKS
    if (KV_FAMILY(type) == KV_BLOCKS) append_blocks(at, empty ? 0 : e, e != nonfinite_vector);
#endif
    if (KV_FAMILY(type) == KV_TURBOQUANT) {
        rotate(rotation);
        encode_turboquant(empty ? 0 : e, at, e != nonfinite_vector);
    }
    EACH(w, KV_WORDS(type, head_dim)) cache[p.codes + at * KV_WORDS(type, head_dim) + w] = packed_word(w);
}

// Stores channel as fp16 numbers in the codes' space, from word `first` on. Ends with a barrier.
void append_exact(uint first) {
    if (rotation != ROTATION_NONE) rotate(rotation);
    EACH_CHANNEL(i) {
        precise float scaled = OWN(channel, i) * (1.0 / WINDOW_INVERSE_UNIT);
        codes[i] = half_bits(scaled);
    }
    barrier();
    EACH(w, head_dim / 2) cache[first + w] = codes[2 * w] | codes[2 * w + 1] << 16;
    barrier();
}

#ifndef TRELLIS
void append_plain(uint at) {
    const uint first = p.codes + at * KV_WORDS(type, head_dim);
    EACH_CHANNEL(i) {
        const float y = OWN(channel, i);
        if (KV_FAMILY(type) == KV_F32)
            cache[first + i] = floatBitsToUint(y);
        else
            codes[i] = KV_FAMILY(type) == KV_F16 ? half_bits(y) : bfloat_bits(y);
    }
    if (KV_FAMILY(type) == KV_F32) return;
    barrier();
    EACH(w, KV_WORDS(type, head_dim)) cache[first + w] = codes[2 * w] | codes[2 * w + 1] << 16;
}
#endif

// Returns x / scale, a power of two, in integers, since NaN and infinity need not survive arithmetic; 0 if the result is
// denormal.
float divided(float x, float scale) {
    const uint bits = floatBitsToUint(x), sign = bits & 0x80000000u;
    const int exponent = int((bits >> 23) & 255u), e = exponent + 127 - int(floatBitsToUint(scale) >> 23);
    if (exponent == 255) return x;
    if (exponent == 0 || e <= 0) return uintBitsToFloat(sign);
    return uintBitsToFloat(e >= 255 ? sign | 0x7f800000u : (bits & 0x807fffffu) | uint(e) << 23);
}

// channel = the vector of row t that is encoded.
void load_vector(uint t, uint at_position) {
    const uint base = (t * p.heads + p.first_head + gl_WorkGroupID.x) * head_dim;
    EACH_CHANNEL(i) OWN(channel, i) = x[base + i];
    if (is_key != 0) {
        NORM_AND_ROPE(weight, p.eps, at_position);
        if (conditioned != 0) {
            CONDITION_KEY(weight, p.first_head + gl_WorkGroupID.x, at_position)
        }
    } else if (conditioned != 0) {
        const uint scales = VALUE_SCALES_AT(rotation) + (p.first_head + gl_WorkGroupID.x) * head_dim;
        EACH_CHANNEL(i) OWN(channel, i) = divided(OWN(channel, i), weight[scales + i]);
    }
    channel_barrier();
}

void main() {
    const uint t = gl_WorkGroupID.y;
    if (t >= tokens) return;
    const uint at_position = row_position(t), head = gl_WorkGroupID.x, slot = row_slot(t);
    if (window == WINDOW_RING && at_position + p.capacity < row_length(t)) return; // later rows of its span take its place
    if (window != WINDOW_NONE) {
        load_vector(t, at_position);
        const uint at = window == WINDOW_BLOCK ? head * p.capacity + t : (slot * p.slice_heads + head) * p.capacity + at_position % p.capacity;
        append_exact(p.codes + at * (head_dim / 2));
        return;
    }
    const uint page = page_of(slot, at_position) * p.slice_heads + head, at = page * PAGE + at_position % PAGE;
    // The first tokens of a page are stored twice; drivers compile one copy of the code before.
    [[dont_unroll]] for (uint once = p.sinks != 0 && at_position % PAGE < FIRST_TOKENS ? 0 : 1; once < 2; once++) {
        load_vector(t, at_position);
        if (once == 0) {
            append_exact(p.sinks + (page * FIRST_TOKENS + at_position % PAGE) * (head_dim / 2));
            continue;
        }
#ifndef TRELLIS
        if (!KV_IS_CODED(type)) {
            append_plain(at);
            continue;
        }
#endif
        append_coded(at);
    }
}
