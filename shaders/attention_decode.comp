#version 460
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require
#extension GL_EXT_shader_explicit_arithmetic_types_float16 : require
#extension GL_KHR_shader_subgroup_arithmetic : require
#extension GL_KHR_shader_subgroup_shuffle : require
#extension GL_KHR_shader_subgroup_vote : require
#include "attention.glsl"
#include "fp16_range.glsl"

// attention.comp's partials for one token, as flash decoding: each subgroup has `batch` keys at a time and a softmax of its own,
// so that subgroups wait for one another only at the end, and many loads are in flight. `parts` lanes share a key, each with 32
// of its channels; of a value a lane has 8 channels, or several times 8. Codes of up to 6 bits, and of keys of unequal bits, are
// multiplied as fp16 levels, 16 products at a time in fp16, the rest in fp32; other types entirely in fp32.
// Which lane has what changes twice. For scores, lanes that share a key (`parts`) multiply their 32 channels for all heads, and
// add up among themselves; each then keeps the scores of `own` heads. For values, a lane has channels, and needs the weights of
// all keys and heads of its subgroup: they go through shared memory (weights). So a vector's codes are read once for all heads of
// a group, which is the kernel's purpose: at one token attention is bound by memory.
// params: attention_params
layout(constant_id = 8) const uint subgroup = 32; // invocations of a subgroup; at least head_dim / 32
layout(constant_id = 9) const uint copies = 32;   // of the tables of levels
#include "level_pairs.glsl"

const uint subgroups = lanes / subgroup;
const uint parts = head_dim / 32, keys_at_once = subgroup / parts;
const bool half_keys = KV_HALF_LEVELS(k_type) != 0, half_values = KV_HALF_LEVELS(v_type) != 0;
const uint steps = DECODE_STEPS, batch = steps * keys_at_once;
// Lanes that share a key keep the scores of `own` heads each, from own_head() on. If neither of parts and heads divides the
// other, each lane keeps all heads. If there are more parts than heads, several lanes keep the same head.
const uint own = heads % parts == 0 ? heads / parts : parts % heads == 0 ? 1 : heads;
const uint keepers = own == heads ? parts : parts * own / heads; // lanes that keep the same heads
const uint scored = steps * own; // scores that a lane keeps of a batch
const uint sharers = subgroup * 8 < head_dim ? subgroup : head_dim / 8, chunks = head_dim / 8 / sharers, turns = subgroup / sharers;
const uint values_of_lane = batch / turns, max_at_once = half_values ? 16 : 8; // loads in flight, and products summed in fp16
const uint window_of_sums = values_of_lane < max_at_once ? values_of_lane : max_at_once;
const uint summed = heads * chunks * 8;

shared vec4 query[half_keys ? 1 : heads * head_dim / 4]; // [head][head_dim]
const uint query_vectors = (head_dim / 4 + subgroup - 1) / subgroup;
shared uvec2 fp16_queries[half_keys ? heads * head_dim / 4 : 1]; // [head][head_dim] as halves
shared float query_factors[heads];
shared uint weights[subgroups * batch * heads];          // of values: [subgroup][key][head], two halves or an fp32 number
shared float joined[heads * head_dim];                   // the sums of all subgroups
shared float group_max[subgroups * heads], group_sum[subgroups * heads], joined_max[heads];

uint lane() { return gl_LocalInvocationID.x % subgroup; }
uint part() { return lane() % parts; }
uint own_head() { return own == heads ? 0 : part() / keepers * own; }
bool keeps_alone() { return lane() % keepers == 0; } // the first of the lanes that keep the same scores
uint keeper_of(uint h) { return own == heads ? 0 : h / own * keepers; }
uint first_weight() { return gl_LocalInvocationID.x / subgroup * batch * heads; }

f16vec2 half_query[half_keys ? heads * 16 : 1]; // [head][pair of this lane's channels]
float query_factor[own];                        // by which a kept head's sums are multiplied
float row_max[own], row_sum[own];               // of the kept heads: the sum of this lane's keys
float value_unit = half_values ? exp2(-24.0) : 1.0; // the least power of two above all values' scales so far
float sums[summed];                 // of weighted values, over 2^11 level_unit / value_unit

// Puts the queries into shared memory. If they are multiplied as fp16 numbers, a subgroup brings the channels of one below 2^11,
// so that fp16 sums of 16 products with levels stay finite.
void load_queries() {
    if (!half_keys) {
        for (uint i = gl_LocalInvocationID.x; i < heads * head_dim / 4; i += lanes)
            query[i] = query_of(i / (head_dim / 4), i % (head_dim / 4));
        return;
    }
    [[dont_unroll]] for (uint h = gl_LocalInvocationID.x / subgroup; h < heads; h += subgroups) {
        vec4 q[query_vectors];
        uvec4 max_bits = uvec4(0);
        [[unroll]] for (uint n = 0; n < query_vectors; n++) {
            q[n] = query_of(h, min(n * subgroup + lane(), head_dim / 4 - 1));
            max_bits = max(max_bits, floatBitsToUint(q[n]) & 0x7fffffffu);
        }
        const uint largest = subgroupMax(max(max(max_bits.x, max_bits.y), max(max_bits.z, max_bits.w)));
        [[unroll]] for (uint n = 0; n < query_vectors; n++) {
            const vec4 scaled = q[n] * (to_fp16_range(largest) / 16.0);
            if (n * subgroup + lane() < head_dim / 4)
                fp16_queries[h * (head_dim / 4) + n * subgroup + lane()] = uvec2(packFloat2x16(f16vec2(scaled.xy)), packFloat2x16(f16vec2(scaled.zw)));
        }
        query_factors[h] = from_fp16_range(largest) * (16.0 * level_unit);
    }
}

// Takes this lane's part of the queries, after a barrier.
void take_queries() {
    [[unroll]] for (uint i = 0; i < own; i++) query_factor[i] = half_keys ? query_factors[own_head() + i] : 1.0;
    if (!half_keys) return;
    [[unroll]] for (uint h = 0; h < heads; h++)
        [[unroll]] for (uint i = 0; i < 8; i++) {
            const uvec2 four = fp16_queries[h * (head_dim / 4) + part() * 8 + i];
            half_query[h * 16 + 2 * i] = unpackFloat2x16(four.x);
            half_query[h * 16 + 2 * i + 1] = unpackFloat2x16(four.y);
        }
}

// Codes of the keys of a round, as load_codes8 returns them; used if keys are multiplied as fp16 levels.
uvec2 key_words[half_keys ? steps * 4 : 1];

void fetch_key(uint n, uint at) {
    const uint base = p.k_codes + at * KV_WORDS(k_type, head_dim);
    if (KV_BITS(k_type) == 4 && KV_TRELLIS(k_type) == 0) { // the lane's channels are 16 bytes
        const uvec4 block = cache(base / 4 + part());
        [[unroll]] for (uint c = 0; c < 4; c++) key_words[n * 4 + c] = uvec2(block[c], 0);
    } else {
        [[unroll]] for (uint c = 0; c < 4; c++) key_words[n * 4 + c] = load_codes8(k_type, base, part() * 32 + c * 8);
    }
}

// Returns the number of a key's vector; `first` is the first of its batch, or `end` - 1 if it lies after all keys.
// PAGE % batch == 0, so a batch lies in one page.
uint vector_of(uint key, uint first, uint end) { return vector_near(min(key, end - 1), min(first, end - 1)); }

const bool unequal = KV_UNEQUAL(k_type) != 0; // of four channels each has a scale
const uint kinds = unequal ? 2 : 1;          // of pairs of channels

// f[h] = the product of query[h] and key n of the round (vector `at`) over the channels of this lane's part; if bits are unequal,
// times the key's scales
void multiply(uint n, uint at, vec4 scales, out float f[heads]) {
    if (half_keys) {
        f16vec2 products[heads * kinds];
        [[unroll]] for (uint h = 0; h < heads * kinds; h++) products[h] = f16vec2(0.0);
        [[unroll]] for (uint c = 0; c < 4; c++) {
            [[unroll]] for (uint i = 0; i < 4; i++) {
                const f16vec2 level = level_pair(k_type, key_words[n * 4 + c], i);
                const uint kind = i % kinds;
                [[unroll]] for (uint h = 0; h < heads; h++)
                    products[h * kinds + kind] = fma(level, half_query[h * 16 + c * 4 + i], products[h * kinds + kind]);
            }
        }
        [[unroll]] for (uint h = 0; h < heads; h++) {
            const vec2 first = vec2(products[h * kinds]), second = vec2(products[h * kinds + kinds - 1]);
            f[h] = unequal ? dot(vec4(first, second), scales) : first.x + first.y;
        }
        return;
    }
    vec4 v[8];
    load32(k_type, p.k_codes, p.k_scales, at, part(), v);
    [[unroll]] for (uint h = 0; h < heads; h++) {
        vec4 products = vec4(0.0);
        [[unroll]] for (uint i = 0; i < 8; i++) products += query[h * (head_dim / 4) + part() * 8 + i] * v[i];
        f[h] = sum_of(products);
    }
}

// Adds the parts of a key's scores; f[0 .. own - 1] become those of the heads that this lane keeps.
void add_parts(inout float f[heads]) {
    if (own == heads) {
        [[unroll]] for (uint x = 1; x < parts; x *= 2)
            [[unroll]] for (uint h = 0; h < heads; h++) f[h] += subgroupShuffleXor(f[h], x);
        return;
    }
    uint count = heads; // halved if there are several: half of the lanes keep the first ones
    [[unroll]] for (uint x = parts / 2; x > 0; x /= 2) {
        const bool upper = (lane() & x) != 0;
        if (count > 1) {
            [[unroll]] for (uint i = 0; i < heads / 2; i++)
                if (i < count / 2) {
                    const float kept = mix(f[i], f[count / 2 + i], upper), given = mix(f[count / 2 + i], f[i], upper);
                    f[i] = kept + subgroupShuffleXor(given, x);
                }
            count /= 2;
        } else {
            f[0] += subgroupShuffleXor(f[0], x);
        }
    }
}

// Raises the maxima to those of these scores and the values' unit to the largest scale, and rescales the sums if either grew.
void raise(float s[scored], float largest_scale) {
    float m[own];
    bool grew = false;
    [[unroll]] for (uint i = 0; i < own; i++) {
        m[i] = row_max[i];
        [[unroll]] for (uint n = 0; n < steps; n++) m[i] = max(m[i], s[n * own + i]);
        for (uint x = parts; x < subgroup; x *= 2) m[i] = max(m[i], subgroupShuffleXor(m[i], x));
        grew = grew || m[i] > row_max[i];
    }
    float unit = value_unit;
    if (half_values) {
        largest_scale = subgroupMax(largest_scale);
        unit = max(unit, mix(0.0, uintBitsToFloat((floatBitsToUint(largest_scale) & 0x7f800000u) + 0x800000u), largest_scale > 0.0));
        grew = grew || unit > value_unit;
    }
    if (!subgroupAny(grew)) return;
    float factors[own];
    [[unroll]] for (uint i = 0; i < own; i++) {
        factors[i] = exp(row_max[i] - m[i]);
        row_sum[i] *= factors[i];
        row_max[i] = m[i];
    }
    [[unroll]] for (uint h = 0; h < heads; h++) {
        const float factor = subgroupShuffle(factors[h % own], keeper_of(h)) * (value_unit / unit);
        [[unroll]] for (uint c = 0; c < chunks * 8; c++) sums[h * chunks * 8 + c] *= factor;
    }
    value_unit = unit;
}

// Codes of a window's values. They are fetched before the keys are multiplied if a round has one window.
const bool fetches_values = half_values && chunks == 1 && values_of_lane == window_of_sums;
uvec2 value_words[half_values ? window_of_sums : 1];

void fetch_values(uint first, uint end, uint begin, uint chunk) {
    // Coded vectors are in no ring: those of a batch, all of one page, lie one after the other.
    const uint c = (chunk * sharers + lane() % sharers) * 8, size = KV_WORDS(v_type, head_dim),
               base = p.v_codes + (vector_of(first, first, end) + lane() / sharers + begin * turns) * size,
               last = p.v_codes + vector_of(first + batch - 1, first, end) * size;
    [[unroll]] for (uint i = 0; i < window_of_sums; i++) value_words[i] = load_codes8(v_type, min(base + i * turns * size, last), c);
}

// Adds `window_of_sums` of the values of this lane's turn, from number `begin` on.
void add_window(uint first, uint end, uint begin) {
    const uint turn = lane() / sharers, share = lane() % sharers;
    [[unroll]] for (uint chunk = 0; chunk < chunks; chunk++) {
        const uint c = (chunk * sharers + share) * 8;
        if (half_values) {
            f16vec2 products[heads * 4];
            [[unroll]] for (uint i = 0; i < heads * 4; i++) products[i] = f16vec2(0.0);
            if (!fetches_values) fetch_values(first, end, begin, chunk);
            [[unroll]] for (uint i = 0; i < window_of_sums; i++) {
                const uint from = first_weight() + turn * heads + (begin + i) * turns * heads;
                [[unroll]] for (uint j = 0; j < 4; j++) {
                    const f16vec2 level = level_pair(v_type, value_words[i], j);
                    [[unroll]] for (uint h = 0; h < heads; h++)
                        products[h * 4 + j] = fma(level, unpackFloat2x16(weights[from + h]), products[h * 4 + j]);
                }
            }
            [[unroll]] for (uint h = 0; h < heads; h++)
                [[unroll]] for (uint i = 0; i < 8; i++) sums[(h * chunks + chunk) * 8 + i] += float(products[h * 4 + i / 2][i % 2]);
        } else {
            [[unroll]] for (uint i = 0; i < window_of_sums; i++) {
                const uint key = turn + (begin + i) * turns, from = first_weight() + key * heads;
                float v[8];
                load_channels(v_type, p.v_codes, p.v_scales, vector_of(first + key, first, end), c, 8, v);
                [[unroll]] for (uint h = 0; h < heads; h++)
                    [[unroll]] for (uint j = 0; j < 8; j++)
                        sums[(h * chunks + chunk) * 8 + j] += uintBitsToFloat(weights[from + h]) * v[j];
            }
        }
    }
}

void add_values(uint first, uint end) {
    if (values_of_lane == window_of_sums) {
        add_window(first, end, 0);
        return;
    }
    [[dont_unroll]] for (uint begin = 0; begin < values_of_lane; begin += window_of_sums) add_window(first, end, begin);
}

// Adds the sums of the lanes that have other turns of the same channels.
void add_turns() {
    for (uint x = sharers; x < subgroup; x *= 2)
        [[unroll]] for (uint i = 0; i < heads * chunks * 8; i++) sums[i] += subgroupShuffleXor(sums[i], x);
}

// Writes the maxima and sums of all subgroups.
void join_groups() {
    [[dont_unroll]] for (uint h = gl_LocalInvocationID.x; h < heads; h += lanes) {
        float max_score = masked, sum = 0.0;
        [[dont_unroll]] for (uint g = 0; g < subgroups; g++) max_score = max(max_score, group_max[g * heads + h]);
        [[dont_unroll]] for (uint g = 0; g < subgroups; g++) sum += group_sum[g * heads + h] * exp(group_max[g * heads + h] - max_score);
        partials[partial_of(h) + partial_size - 2] = max_score;
        partials[partial_of(h) + partial_size - 1] = sum;
        joined_max[h] = max_score;
    }
}

// Joins the subgroups' sums of values, one subgroup after the other, and writes the partials.
void store_parts() {
    const uint group = gl_LocalInvocationID.x / subgroup;
    add_turns();
    [[unroll]] for (uint i = 0; i < own; i++) {
        for (uint x = parts; x < subgroup; x *= 2) row_sum[i] += subgroupShuffleXor(row_sum[i], x);
        if (lane() < parts && keeps_alone()) {
            group_max[group * heads + own_head() + i] = row_max[i];
            group_sum[group * heads + own_head() + i] = row_sum[i];
        }
    }
    barrier();
    join_groups();
    barrier();
    const float unit = half_values ? value_unit * (level_unit / 2048.0) : 1.0;
    [[dont_unroll]] for (uint g = 0; g < subgroups; g++) {
        if (group == g && lane() < sharers)
            [[unroll]] for (uint h = 0; h < heads; h++) {
                const float factor = exp(group_max[g * heads + h] - joined_max[h]) * unit;
                [[unroll]] for (uint i = 0; i < chunks * 8; i++) {
                    const uint at = h * head_dim + (i / 8 * sharers + lane()) * 8 + i % 8;
                    joined[at] = mix(joined[at], 0.0, g == 0) + sums[h * chunks * 8 + i] * factor;
                }
            }
        barrier();
    }
    [[dont_unroll]] for (uint i = gl_LocalInvocationID.x; i < heads * head_dim; i += lanes) partials[partial_of(i / head_dim) + i % head_dim] = joined[i];
}

// Every subgroup reaches the same number of barriers: Mesa's software driver treats a subgroup barrier as a workgroup's.
void main() {
    if (!find_tile()) return;
    const uint begin = key_range().x, end = key_range().y;
    if (!is_read(begin)) return;
    prepare_levels();
    prepare_level_pairs();
    load_queries();
    [[unroll]] for (uint i = 0; i < heads * chunks * 8; i++) sums[i] = 0.0;
    [[unroll]] for (uint i = 0; i < own; i++) {
        row_max[i] = masked;
        row_sum[i] = 0.0;
    }
    barrier();
    take_queries();
    const uvec2 keys_seen = seen_keys(0, end);
    [[dont_unroll]] for (uint round = begin; round < end; round += subgroups * batch) {
        const uint first = round + gl_LocalInvocationID.x / subgroup * batch;
        float s[scored], value_scales[steps], largest_scale = 0.0;
        vec4 key_scales[steps];
        vec2 page_scores[own];
        uint at[steps];
        [[unroll]] for (uint n = 0; n < steps; n++) {
            at[n] = vector_of(first + n * keys_at_once + lane() / parts, first, end);
            if (half_keys) fetch_key(n, at[n]);
            key_scales[n] = scales_of(k_type, p.k_scales, at[n]);
            value_scales[n] = scales_of(v_type, p.v_scales, at[n]).x;
        }
        [[unroll]] for (uint i = 0; i < own; i++) page_scores[i] = page_scores_of(own_head() + i, first, batch, end);
        if (fetches_values) fetch_values(first, end, 0, 0);
        [[unroll]] for (uint n = 0; n < steps; n++) {
            const uint key = first + n * keys_at_once + lane() / parts;
            const bool seen = is_seen(keys_seen, key);
            float f[heads];
            multiply(n, at[n], key_scales[n], f);
            add_parts(f);
            [[unroll]] for (uint i = 0; i < own; i++) {
                const float more = page_score_in(page_scores[i], first, key);
                s[n * own + i] = mix(masked, f[i] * (query_factor[i] * (unequal ? 1.0 : key_scales[n].x)) + more, seen);
            }
            const bool counts = seen && floatBitsToUint(value_scales[n]) <= floatBitsToUint(65504.0);
            largest_scale = max(largest_scale, mix(0.0, value_scales[n], counts));
        }
        raise(s, largest_scale);
        [[unroll]] for (uint n = 0; n < steps; n++)
            [[unroll]] for (uint i = 0; i < own; i++) {
                const float weight = mix(exp(s[n * own + i] - row_max[i]), 0.0, s[n * own + i] == masked);
                row_sum[i] += weight;
                const float scale = half_values ? value_scales[n] * (2048.0 / value_unit) : value_scales[n];
                const float scaled = mix(weight * scale, 0.0, weight == 0.0); // whatever the scale of a key without weight
                if (keeps_alone())
                    weights[first_weight() + (n * keys_at_once + lane() / parts) * heads + own_head() + i] =
                        half_values ? packFloat2x16(f16vec2(float16_t(scaled))) : floatBitsToUint(scaled);
            }
        subgroupMemoryBarrierShared();
        subgroupBarrier();
        add_values(first, end);
        subgroupBarrier();
    }
    store_parts();
}
