#version 460
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require
#extension GL_KHR_shader_subgroup_arithmetic : require
#extension GL_KHR_shader_subgroup_shuffle : require
#extension GL_KHR_memory_scope_semantics : require
#extension GL_KHR_cooperative_matrix : require
#extension GL_EXT_shader_explicit_arithmetic_types_float16 : require
#include "attention.glsl"
#include "each_matrix.glsl"
#include "fp16_range.glsl"

// attention.comp's partials with cooperative matrices: every key and value is decoded once, into shared memory, for all rows of
// the workgroup, whose subgroups have a strip of `m` rows each. Levels of codes and fp16 values are exact in fp16; queries
// and the weights of values are rounded to fp16, sums are fp32. For types with one scale per vector or quarter, and f16.
// Heads of 256 channels are too long for the registers of a subgroup: two subgroups share a strip then (`sides`), each with half
// of the channels of queries and values. A score is the sum of both sides' products, and both know all scores. Why fp16 is
// enough: everything that enters a matrix is brought into fp16's range by a power of two, so that only the conversion rounds: a
// query by that of its largest element (fp16_range.glsl), and the weights of values by 2^14 / unit, where `unit` is a power of
// two above all scales of values so far. A weight is exp(score - maximum) times the value's scale, so it is at most 2^14, and its
// fp16 rounding is relative to the largest. If a batch brings a larger scale, `unit` grows, and the sums so far shrink by the
// ratio, together with the factor of the online softmax (shrink_sums). Scales of keys multiply the finished scores in fp32. How
// loads are hidden: the codes of the next batch are fetched into registers (fetch_batch) before the products of this one: they
// are on their way meanwhile. Only decoded vectors are in shared memory; the queries are there first, until each subgroup has its
// strip as matrices. A NaN or an infinity among fp16 values would spoil the sums of all rows, also of rows that may not see it,
// since 0 times it is NaN. So it moves into the value's scale (move_nonfinite), and the weight of a row that does not see it is 0
// without a product.
// needs cooperative matrices
// params: attention_params
// Matrices are m x k, times k x n: rows x channels, times channels x keys; or rows x keys, times keys x channels.
layout(constant_id = 8) const uint m = 16;
layout(constant_id = 9) const uint n = 16;
layout(constant_id = 10) const uint k = 16;
layout(constant_id = 11) const uint batch = 32; // keys at a time: whole matrices

const uint strips = (rows + m - 1) / m, sides = head_dim > 128 ? 2 : 1;
// An invocation weighs own_keys of a row's keys.
const uint subgroup = lanes / (strips * sides), sharers = subgroup / m, own_keys = batch / sharers;
const uint stride = head_dim / 4 + 2;    // in vectors of four channels; two extra ones keep neighbours in different banks
const uint scores_stride = batch + 4, weights_stride = batch + 8;
const uint blocks = head_dim / 32, deep = head_dim / sides / k, wide = head_dim / sides / n; // matrices along a side of a vector
const uint side_keys = batch / sides;
shared f16vec4 vectors[2 * batch * stride];                // keys, then values; first the queries, 2 * batch at a time
shared float scores[strips * m * scores_stride];
shared float16_t weights[strips * m * weights_stride];
shared float key_scales[batch], value_scales[batch];
shared uint largest[strips * m]; // fp32 bits of a query's largest magnitude

#define FACTOR_A coopmat<float16_t, gl_ScopeSubgroup, m, k, gl_MatrixUseA>
#define FACTOR_B coopmat<float16_t, gl_ScopeSubgroup, k, n, gl_MatrixUseB>
#define PRODUCT coopmat<float, gl_ScopeSubgroup, m, n, gl_MatrixUseAccumulator>
FACTOR_A queries[deep];
PRODUCT sums[wide]; // of weighted values, 2^14 / unit times too large

uint own_strip() { return gl_SubgroupID / sides * m; } // its first row
uint own_side() { return gl_SubgroupID % sides; }
uint own_row() { return own_strip() + gl_SubgroupInvocationID / sharers; }
uint own_key() { return gl_SubgroupInvocationID % sharers; }
float row_factor, row_max = masked, row_sum = 0.0;
uvec2 keys_seen; // by the own row
float unit = exp2(-24.0); // the least power of two above all values' scales so far

// Barrier of all subgroups of a strip.
void strip_barrier() {
    if (sides == 1) subgroupBarrier();
    else barrier();
}

vec4 query_of_row(uint r, uint i) { return mix(vec4(0.0), query_of(min(r, rows - 1), i), bvec4(r < rows)); }

void load_queries() {
    for (uint r = gl_LocalInvocationID.x; r < strips * m; r += lanes) largest[r] = 0;
    prepare_levels();
    barrier();
    for (uint i = gl_LocalInvocationID.x; i < strips * m * blocks; i += lanes) {
        uvec4 max_bits = uvec4(0);
        for (uint j = 0; j < 8; j++) max_bits = max(max_bits, floatBitsToUint(query_of_row(i / blocks, i % blocks * 8 + j)) & 0x7fffffffu);
        atomicMax(largest[i / blocks], max(max(max_bits.x, max_bits.y), max(max_bits.z, max_bits.w)));
    }
    barrier();
    row_factor = from_fp16_range(largest[own_row()]);
    [[dont_unroll]] for (uint first = 0; first < strips * m; first += 2 * batch) { // m divides batch
        for (uint i = gl_LocalInvocationID.x; i < min(strips * m - first, 2 * batch) * head_dim / 4; i += lanes) {
            const uint r = first + i / (head_dim / 4), at = i % (head_dim / 4);
            vectors[(r - first) * stride + at] = f16vec4(query_of_row(r, at) * to_fp16_range(largest[r]));
        }
        barrier();
        if (own_strip() / (2 * batch) == first / (2 * batch))
            [[unroll]] for (uint c = 0; c < deep; c++)
                coopMatLoad(queries[c], vectors, (own_strip() - first) * stride + (own_side() * deep + c) * (k / 4), stride,
                            gl_CooperativeMatrixLayoutRowMajor);
        barrier();
    }
}

// Channels [32 b, 32 b + 32) of a key or value as they are in the cache, and its scale.
struct Fetched { uvec4 fp16[4]; CodeBlock codes; vec4 scales; };
// Whole subgroups have the blocks of a batch, `items` in number, an invocation `shares` of them. If there are twice as many
// invocations as blocks, half of them store keys and half values: all fetch both, as loads in a branch would be waited for at its
// end.
const uint items = batch * blocks, shares = (items + lanes - 1) / lanes;
const bool apart = lanes >= 2 * items;
uint item_of(uint s) { return apart ? gl_LocalInvocationID.x % items : s * lanes + gl_LocalInvocationID.x; }
bool stores(uint s, uint side) { // 0: keys, 1: values
    return apart ? gl_LocalInvocationID.x / items == side : s * lanes + gl_LocalInvocationID.x < items;
}
Fetched keys_ahead[shares], values_ahead[shares];
// Page scores of this invocation's own row (page_scores_of).
vec2 page_scores, page_scores_ahead;

Fetched fetch(uint type, uint codes, uint scales, uint at, uint b) {
    Fetched f;
    const uint base = codes + at * KV_WORDS(type, head_dim);
    if (KV_IS_CODED(type)) f.codes = load_block(type, base, b);
    else [[unroll]] for (uint i = 0; i < 4; i++) f.fp16[i] = cache(base / 4 + b * 4 + i);
    f.scales = scales_of(type, scales, at);
    return f;
}

// Fetches this invocation's share of a batch; past the end: the last key.
void fetch_batch(uint first, uint end) {
    const uint near = min(first, end - 1);
    page_scores_ahead = page_scores_of(min(own_row(), rows - 1), first, batch, end);
    [[unroll]] for (uint s = 0; s < shares; s++) {
        const uint i = min(item_of(s), items - 1), key = min(first + i / blocks, end - 1),
                   at = vector_near(key, PAGE % batch == 0 ? near : key);
        keys_ahead[s] = fetch(k_type, p.k_codes, p.k_scales, at, i % blocks);
        values_ahead[s] = fetch(v_type, p.v_codes, p.v_scales, at, i % blocks);
    }
}

void decode(uint type, Fetched f, out f16vec4 v[8]) {
    [[unroll]] for (uint i = 0; i < 8; i++) {
        if (KV_IS_CODED(type)) {
            [[unroll]] for (uint j = 0; j < 4; j++) v[i][j] = float16_t(level_of(type, block_code(type, f.codes, 4 * i + j)));
        } else {
            const uvec4 w = f.fp16[i / 2];
            v[i] = f16vec4(unpackFloat2x16(i % 2 == 0 ? w.x : w.z), unpackFloat2x16(i % 2 == 0 ? w.y : w.w));
        }
    }
}

// An infinity or NaN among values goes into the scale, since a weight of 0 would not remove it.
void move_nonfinite(inout f16vec4 v[8], inout float scale) {
    uint max_bits = 0; // as bits: a NaN's are the greatest
    [[unroll]] for (uint i = 0; i < 8; i++) {
        const uvec2 bits = uvec2(packFloat2x16(v[i].xy), packFloat2x16(v[i].zw)) & 0x7fff7fffu;
        max_bits = max(max(max_bits, max(bits.x >> 16, bits.y >> 16)), max(bits.x & 0x7fffu, bits.y & 0x7fffu));
    }
    for (uint x = 1; x < blocks; x <<= 1) max_bits = max(max_bits, subgroupShuffleXor(max_bits, x));
    const bool finite = max_bits < 0x7c00u;
    scale = mix(uintBitsToFloat(0x7fc00000u), scale, finite);
    [[unroll]] for (uint i = 0; i < 8; i++) v[i] = mix(f16vec4(0.0), v[i], bvec4(finite));
}

// If bits are unequal, each quarter has a scale of its own. The key's scale is then the largest of them, and its levels are
// multiplied by the ratios to it. One ratio is 1, and the rounding to fp16 is small compared with the error of a level.
float scale_of_key(vec4 scales) {
    return KV_UNEQUAL(k_type) == 0 ? scales.x : max(max(scales.x, scales.y), max(scales.z, scales.w));
}
void join_quarters(inout f16vec4 v[8], vec4 scales) {
    const float largest = scale_of_key(scales);
    const f16vec4 by = f16vec4(largest > 0.0 ? scales / largest : vec4(0.0));
    [[unroll]] for (uint i = 0; i < 8; i++) v[i] *= by;
}

// Stores the fetched vectors in shared memory, where all subgroups read them.
void store_batch() {
    [[unroll]] for (uint s = 0; s < shares; s++) {
        const uint key = item_of(s) / blocks, b = item_of(s) % blocks;
        f16vec4 levels[8];
        if (stores(s, 0)) {
            decode(k_type, keys_ahead[s], levels);
            if (KV_UNEQUAL(k_type) != 0) join_quarters(levels, keys_ahead[s].scales);
            [[unroll]] for (uint j = 0; j < 8; j++) vectors[key * stride + b * 8 + j] = levels[j];
            if (b == 0) key_scales[key] = scale_of_key(keys_ahead[s].scales);
        }
        if (stores(s, 1)) {
            float scale = values_ahead[s].scales.x;
            decode(v_type, values_ahead[s], levels);
            if (!KV_IS_CODED(v_type)) move_nonfinite(levels, scale);
            [[unroll]] for (uint j = 0; j < 8; j++) vectors[(batch + key) * stride + b * 8 + j] = levels[j];
            if (b == 0) value_scales[key] = scale;
        }
    }
}

// scores[row][i] = query . key i, for the rows of the strip. The products of n keys wait for one another, so products of other
// keys go on meanwhile. Two sides exchange their sums for each other's keys, and each stores the sums of half of the keys.
void multiply_keys() {
    const uint own = own_side() * side_keys, at = own_strip() * scores_stride, count = batch / n;
    PRODUCT products[count]; // of the other side's keys, then of the own ones
    [[unroll]] for (uint i = 0; i < count; i++) products[i] = PRODUCT(0.0);
    [[unroll]] for (uint c = 0; c < deep; c++)
        [[unroll]] for (uint i = 0; i < count; i++) {
            const uint key = sides == 1 ? i * n : (own + side_keys + i * n) % batch;
            FACTOR_B keys;
            coopMatLoad(keys, vectors, key * stride + (own_side() * deep + c) * (k / 4), stride, gl_CooperativeMatrixLayoutColumnMajor);
            products[i] = coopMatMulAdd(queries[c], keys, products[i]);
        }
    if (sides == 2) {
        [[unroll]] for (uint i = 0; i < count / 2; i++)
            coopMatStore(products[i], scores, at + (own + side_keys) % batch + i * n, scores_stride, gl_CooperativeMatrixLayoutRowMajor);
        barrier();
        [[unroll]] for (uint i = count / 2; i < count; i++) {
            PRODUCT others;
            coopMatLoad(others, scores, at + own + (i - count / 2) * n, scores_stride, gl_CooperativeMatrixLayoutRowMajor);
            products[i] += others;
        }
    }
    [[unroll]] for (uint i = sides == 1 ? 0 : count / 2; i < count; i++)
        coopMatStore(products[i], scores, at + (sides == 1 ? i * n : own + (i - count / 2) * n), scores_stride,
                     gl_CooperativeMatrixLayoutRowMajor);
}

// The online softmax of a row, by the invocations that share it. Returns the factor that rescales the earlier sums.
float weigh(uint first) {
    const uint r = own_row(), from = r * scores_stride + own_key(), to = r * weights_stride + own_key();
    float new_max = row_max, own_scores[own_keys];
    [[unroll]] for (uint j = 0; j < own_keys; j++) {
        const uint i = own_key() + j * sharers;
        const float score = scores[from + j * sharers] * (row_factor * key_scales[i]) + page_score_in(page_scores, first, first + i);
        own_scores[j] = mix(masked, score, is_seen(keys_seen, first + i));
        new_max = max(new_max, own_scores[j]);
    }
    for (uint x = 1; x < sharers; x <<= 1) new_max = max(new_max, subgroupShuffleXor(new_max, x));
    float max_scale = 0.0;
    for (uint i = gl_SubgroupInvocationID; i < batch; i += subgroup)
        max_scale = max(max_scale, mix(0.0, value_scales[i], floatBitsToUint(value_scales[i]) <= floatBitsToUint(65504.0)));
    max_scale = subgroupMax(max_scale);
    const float next_unit = max(unit, mix(0.0, uintBitsToFloat((floatBitsToUint(max_scale) & 0x7f800000u) + 0x800000u), max_scale > 0.0));
    const float shrink = exp(row_max - new_max), by = 16384.0 / next_unit;
    const float base = max(new_max, 0.5 * masked); // the weight of a masked key is 0, also of a row that has seen none
    row_sum *= shrink;
    [[unroll]] for (uint j = 0; j < own_keys; j++) {
        const float weight = exp(own_scores[j] - base);
        row_sum += weight;
        const float16_t scaled = float16_t(mix(weight * (value_scales[own_key() + j * sharers] * by), 0.0, weight == 0.0));
        if (own_side() == 0) weights[to + j * sharers] = scaled; // both sides have the same
    }
    const float factor = shrink * (unit / next_unit);
    row_max = new_max;
    unit = next_unit;
    return factor;
}

// Every subgroup reaches the same number of barriers: Mesa's software driver treats a subgroup barrier as a workgroup's.
void shrink_sums(float factor) {
    const bool shrunk = subgroupMin(factor) < 1.0;
    strip_barrier(); // all have read their scores
    for (uint i = own_key(); i < n && shrunk && own_side() == 0; i += sharers) scores[own_row() * scores_stride + i] = factor;
    strip_barrier();
    if (!shrunk) return;
    PRODUCT by;
    coopMatLoad(by, scores, own_strip() * scores_stride, scores_stride, gl_CooperativeMatrixLayoutRowMajor);
    [[unroll]] for (uint c = 0; c < wide; c++) sums[c] *= by;
}

void add_values() {
    [[dont_unroll]] for (uint first = 0; first < batch; first += k) {
        FACTOR_A by;
        coopMatLoad(by, weights, own_strip() * weights_stride + first, weights_stride, gl_CooperativeMatrixLayoutRowMajor);
        [[unroll]] for (uint c = 0; c < wide; c++) {
            FACTOR_B values;
            coopMatLoad(values, vectors, (batch + first) * stride + (own_side() * wide + c) * (n / 4), stride, gl_CooperativeMatrixLayoutRowMajor);
            sums[c] = coopMatMulAdd(by, values, sums[c]);
        }
    }
}

// Writes matrix c of the sums, which the subgroup has in `scores` from column `from` on.
void store_sums(uint c, uint from) {
    [[dont_unroll]] for (uint i = gl_SubgroupInvocationID; i < m * n; i += subgroup) {
        const uint r = own_strip() + i / n;
        if (r < rows && row_token(r) < end_token)
            partials[partial_of(r) + (own_side() * wide + c) * n + i % n] = scores[r * scores_stride + from + i % n] * (unit / 16384.0);
    }
}

// Writes the strip's partials, `n` channels at a time through shared memory.
void store_parts() {
    const uint from = own_side() * side_keys; // columns of `scores`, n or more for each side
#define STORE(c)                                                                                                                 \
    if (c < wide) {                                                                                                              \
        subgroupBarrier();                                                                                                       \
        coopMatStore(sums[min(c, wide - 1)], scores, own_strip() * scores_stride + from, scores_stride, gl_CooperativeMatrixLayoutRowMajor); \
        subgroupBarrier();                                                                                                       \
        store_sums(c, from);                                                                                                     \
    }
    EACH_MATRIX(STORE)
    for (uint x = 1; x < sharers; x <<= 1) row_sum += subgroupShuffleXor(row_sum, x);
    const uint r = own_row();
    if (own_key() == 0 && own_side() == 0 && r < rows && row_token(r) < end_token) {
        partials[partial_of(r) + partial_size - 2] = row_max;
        partials[partial_of(r) + partial_size - 1] = row_sum;
    }
}

void main() {
    if (!find_tile()) return;
    const uint begin = key_range().x, end = key_range().y;
    if (!is_read(begin)) return;
    load_queries();
    [[unroll]] for (uint c = 0; c < wide; c++) sums[c] = PRODUCT(0.0);
    keys_seen = mix(uvec2(0), seen_keys(min(own_row(), rows - 1), end), bvec2(own_row() < rows));
    fetch_batch(begin, end);
    for (uint first = begin; first < end; first += batch) {
        store_batch();
        barrier();
        page_scores = page_scores_ahead;
        fetch_batch(first + batch, end);
        multiply_keys();
        strip_barrier();
        shrink_sums(weigh(first));
        add_values();
        barrier();
    }
    store_parts();
}
