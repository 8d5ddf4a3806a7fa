#version 460
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require
#extension GL_KHR_shader_subgroup_arithmetic : require
#extension GL_KHR_shader_subgroup_shuffle : require
#extension GL_KHR_memory_scope_semantics : require
#extension GL_KHR_cooperative_matrix : require
#extension GL_EXT_shader_explicit_arithmetic_types_float16 : require
#include "attention.glsl"
#include "fp16_range.glsl"

// attention.comp's partials with cooperative matrices: every key and value is decoded once, into shared memory, for all rows of
// the workgroup, whose subgroups have a strip of `m` rows each. Levels of codes and fp16 values are exact in fp16; queries
// and the weights of values are rounded to fp16, sums are fp32. For types with one scale per vector, and f16.
// How fp16 is enough. Everything that enters a matrix is brought into fp16's range by a power of two, so that only the conversion
// rounds: a query by that of its largest element (fp16_range.glsl), and the weights of values by 2^14 / unit, where `unit` is a
// power of two above all scales of values so far. A weight is exp(score - maximum) times the value's scale, so it is at most
// 2^14, and its fp16 rounding is relative to the largest. If a batch brings a larger scale, `unit` grows, and the sums so far
// shrink by the ratio, together with the factor of the online softmax (shrink_sums). Scales of keys multiply the finished scores
// in fp32.
// How loads are hidden. The codes of the next batch are fetched into registers (fetch_batch) before the products of this one:
// they are on their way meanwhile. Only decoded vectors are in shared memory; the queries are there first, until each subgroup
// has its strip as matrices.
// A NaN or an infinity among fp16 values would spoil the sums of all rows, also of rows that may not see it, since 0 times it is
// NaN. So it moves into the value's scale (move_nonfinite), and the weight of a row that does not see it is 0 without a product.
// needs cooperative matrices
// params: attention_params
layout(constant_id = 8) const uint m = 16; // matrices are m x k, times k x n: rows x channels, times channels x keys; or rows x keys,
layout(constant_id = 9) const uint n = 16; // times keys x channels
layout(constant_id = 10) const uint k = 16;
layout(constant_id = 11) const uint batch = 32; // keys at a time: whole matrices

const uint strips = (rows + m - 1) / m;
const uint subgroup = lanes / strips, sharers = subgroup / m, own_keys = batch / sharers; // each invocation weighs some of a row's keys
const uint stride = head_dim / 4 + 2;    // in vectors of four channels; two extra ones keep neighbours in different banks
const uint scores_stride = batch + 4, weights_stride = batch + 8;
const uint blocks = head_dim / 32, deep = head_dim / k, wide = head_dim / n; // matrices along a vector
shared f16vec4 vectors[2 * batch * stride];                // keys, then values; first the queries: at most 2 * batch
shared float scores[strips * m * scores_stride];
shared float16_t weights[strips * m * weights_stride];
shared float key_scales[batch], value_scales[batch];
shared uint largest[strips * m]; // fp32 bits of a query's largest magnitude

#define FACTOR_A coopmat<float16_t, gl_ScopeSubgroup, m, k, gl_MatrixUseA>
#define FACTOR_B coopmat<float16_t, gl_ScopeSubgroup, k, n, gl_MatrixUseB>
#define PRODUCT coopmat<float, gl_ScopeSubgroup, m, n, gl_MatrixUseAccumulator>
FACTOR_A queries[deep];
PRODUCT sums[wide]; // of weighted values, 2^14 / unit times too large

uint own_row() { return gl_SubgroupID * m + gl_SubgroupInvocationID / sharers; }
uint own_key() { return gl_SubgroupInvocationID % sharers; }
float row_factor, row_max = masked, row_sum = 0.0;
float unit = exp2(-24.0); // the least power of two above all values' scales so far

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
    for (uint i = gl_LocalInvocationID.x; i < strips * m * head_dim / 4; i += lanes) {
        const uint r = i / (head_dim / 4), at = i % (head_dim / 4);
        vectors[r * stride + at] = f16vec4(query_of_row(r, at) * to_fp16_range(largest[r]));
    }
    barrier();
    [[unroll]] for (uint c = 0; c < deep; c++)
        coopMatLoad(queries[c], vectors, gl_SubgroupID * m * stride + c * (k / 4), stride, gl_CooperativeMatrixLayoutRowMajor);
    barrier();
}

// Channels [32 b, 32 b + 32) of a key or value as they are in the cache, and its scale.
struct Fetched { uvec4 halves[4]; CodeBlock codes; vec2 scales; };
const uint shares = (batch * blocks + lanes - 1) / lanes; // of an invocation
Fetched keys_ahead[shares], values_ahead[shares];

Fetched fetch(uint type, uint codes, uint scales, uint at, uint b) {
    Fetched f;
    const uint base = codes + at * KV_WORDS(type, head_dim);
    if (KV_IS_CODED(type)) f.codes = load_block(type, base, b);
    else [[unroll]] for (uint i = 0; i < 4; i++) f.halves[i] = cache(base / 4 + b * 4 + i);
    f.scales = scales_of(type, scales, at);
    return f;
}

// Fetches this invocation's share of a batch; past the end: the last key.
void fetch_batch(uint first, uint end) {
    const uint near = min(first, end - 1);
    [[unroll]] for (uint s = 0; s < shares; s++) {
        const uint i = min(s * lanes + gl_LocalInvocationID.x, batch * blocks - 1), key = min(first + i / blocks, end - 1),
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
            const uvec4 w = f.halves[i / 2];
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

// Even and odd channels have scales of their own where bits are unequal: a key then has the larger, and its levels the ratios to that. One of
// them is 1, and rounding to fp16 is nothing beside the error of a level.
float scale_of_key(vec2 scales) { return KV_UNEQUAL(k_type) == 0 || scales.x >= scales.y ? scales.x : scales.y; }
void join_halves(inout f16vec4 v[8], vec2 scales) {
    const float larger = scale_of_key(scales);
    const f16vec2 by = f16vec2(larger > 0.0 ? scales / larger : vec2(0.0));
    [[unroll]] for (uint i = 0; i < 8; i++) v[i] *= by.xyxy;
}

// Stores what was fetched where all subgroups read it.
void store_batch() {
    [[unroll]] for (uint s = 0; s < shares; s++) {
        const uint i = s * lanes + gl_LocalInvocationID.x, key = i / blocks, b = i % blocks;
        f16vec4 k_levels[8], v_levels[8];
        decode(k_type, keys_ahead[s], k_levels);
        decode(v_type, values_ahead[s], v_levels);
        float scale = values_ahead[s].scales.x;
        if (KV_UNEQUAL(k_type) != 0) join_halves(k_levels, keys_ahead[s].scales);
        if (!KV_IS_CODED(v_type)) move_nonfinite(v_levels, scale);
        if (i >= batch * blocks) break;
        [[unroll]] for (uint j = 0; j < 8; j++) vectors[key * stride + b * 8 + j] = k_levels[j];
        [[unroll]] for (uint j = 0; j < 8; j++) vectors[(batch + key) * stride + b * 8 + j] = v_levels[j];
        if (b != 0) continue;
        key_scales[key] = scale_of_key(keys_ahead[s].scales);
        value_scales[key] = scale;
    }
}

// scores[row][i] = query . key i, for the rows of the strip
void multiply_keys() {
    [[dont_unroll]] for (uint first = 0; first < batch; first += n) {
        PRODUCT products = PRODUCT(0.0);
        [[unroll]] for (uint c = 0; c < deep; c++) {
            FACTOR_B keys;
            coopMatLoad(keys, vectors, first * stride + c * (k / 4), stride, gl_CooperativeMatrixLayoutColumnMajor);
            products = coopMatMulAdd(queries[c], keys, products);
        }
        coopMatStore(products, scores, gl_SubgroupID * m * scores_stride + first, scores_stride,
                     gl_CooperativeMatrixLayoutRowMajor);
    }
}

// The online softmax of a row, by the invocations that share it. Returns the factor that rescales the earlier sums.
float weigh(uint first, uint end) {
    const uint r = own_row(), from = r * scores_stride + own_key(), to = r * weights_stride + own_key();
    float new_max = row_max, own_scores[own_keys];
    [[unroll]] for (uint j = 0; j < own_keys; j++) {
        const uint i = own_key() + j * sharers;
        const float score = scores[from + j * sharers] * (row_factor * key_scales[i]) +
                            page_score(min(r, rows - 1), min(window == WINDOW_ONLY ? first + i : first, end - 1)); // PAGE % batch == 0
        own_scores[j] = mix(masked, score, r < rows && sees(r, first + i, end));
        new_max = max(new_max, own_scores[j]);
    }
    for (uint x = 1; x < sharers; x <<= 1) new_max = max(new_max, subgroupShuffleXor(new_max, x));
    float max_scale = 0.0;
    for (uint i = gl_SubgroupInvocationID; i < batch; i += subgroup)
        max_scale = max(max_scale, mix(0.0, value_scales[i], floatBitsToUint(value_scales[i]) <= floatBitsToUint(65504.0)));
    max_scale = subgroupMax(max_scale);
    const float next_unit = max(unit, mix(0.0, uintBitsToFloat((floatBitsToUint(max_scale) & 0x7f800000u) + 0x800000u), max_scale > 0.0));
    const float shrink = exp(row_max - new_max), by = 16384.0 / next_unit;
    row_sum *= shrink;
    [[unroll]] for (uint j = 0; j < own_keys; j++) {
        const float weight = mix(exp(own_scores[j] - new_max), 0.0, own_scores[j] == masked);
        row_sum += weight;
        weights[to + j * sharers] = float16_t(mix(weight * (value_scales[own_key() + j * sharers] * by), 0.0, weight == 0.0));
    }
    const float factor = shrink * (unit / next_unit);
    row_max = new_max;
    unit = next_unit;
    return factor;
}

// Every subgroup reaches the same number of barriers: Mesa's software driver treats a subgroup barrier as a workgroup's.
void shrink_sums(float factor) {
    const bool shrunk = subgroupMin(factor) < 1.0;
    subgroupBarrier(); // all have read their scores
    for (uint i = own_key(); i < n && shrunk; i += sharers) scores[own_row() * scores_stride + i] = factor;
    subgroupBarrier();
    if (!shrunk) return;
    PRODUCT by;
    coopMatLoad(by, scores, gl_SubgroupID * m * scores_stride, scores_stride, gl_CooperativeMatrixLayoutRowMajor);
    [[unroll]] for (uint c = 0; c < wide; c++) sums[c] *= by;
}

void add_values() {
    [[dont_unroll]] for (uint first = 0; first < batch; first += k) {
        FACTOR_A by;
        coopMatLoad(by, weights, gl_SubgroupID * m * weights_stride + first, weights_stride, gl_CooperativeMatrixLayoutRowMajor);
        [[unroll]] for (uint c = 0; c < wide; c++) {
            FACTOR_B values;
            coopMatLoad(values, vectors, (batch + first) * stride + c * (n / 4), stride, gl_CooperativeMatrixLayoutRowMajor);
            sums[c] = coopMatMulAdd(by, values, sums[c]);
        }
    }
}

// Writes the strip's partials, `n` channels at a time through shared memory.
void store_parts() {
    const uint strip = gl_SubgroupID * m;
    [[unroll]] for (uint c = 0; c < wide; c++) {
        subgroupBarrier();
        coopMatStore(sums[c], scores, strip * scores_stride, scores_stride, gl_CooperativeMatrixLayoutRowMajor);
        subgroupBarrier();
        for (uint i = gl_SubgroupInvocationID; i < m * n; i += subgroup) {
            const uint r = strip + i / n;
            if (r < rows && row_token(r) < end_token)
                partials[part_of(r) + c * n + i % n] = scores[r * scores_stride + i % n] * (unit / 16384.0);
        }
    }
    for (uint x = 1; x < sharers; x <<= 1) row_sum += subgroupShuffleXor(row_sum, x);
    const uint r = own_row();
    if (own_key() == 0 && r < rows && row_token(r) < end_token) {
        partials[part_of(r) + part_size - 2] = row_max;
        partials[part_of(r) + part_size - 1] = row_sum;
    }
}

void main() {
    if (!find_tile()) return;
    const uint begin = key_range().x, end = key_range().y;
    if (!is_read(begin)) return;
    load_queries();
    [[unroll]] for (uint c = 0; c < wide; c++) sums[c] = PRODUCT(0.0);
    fetch_batch(begin, end);
    for (uint first = begin; first < end; first += batch) {
        store_batch();
        barrier();
        fetch_batch(first + batch, end);
        multiply_keys();
        subgroupBarrier();
        shrink_sums(weigh(first, end));
        add_values();
        barrier();
    }
    store_parts();
}
