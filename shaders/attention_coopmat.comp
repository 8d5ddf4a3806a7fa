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
// needs cooperative matrices
// params: attention_params
layout(constant_id = 8) const uint m = 16; // matrices are m x k, times k x n: rows x channels, times channels x keys; or rows x keys,
layout(constant_id = 9) const uint n = 16; // times keys x channels
layout(constant_id = 10) const uint k = 16;
layout(constant_id = 11) const uint batch = 32; // keys at a time: whole matrices

const uint strips = (rows + m - 1) / m;
const uint subgroup = lanes / strips, sharers = subgroup / m; // each invocation weighs some of the keys of a row
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
float row_factor, row_max = nothing, row_sum = 0.0;
float unit = exp2(-24.0); // the least power of two above all values' scales so far

vec4 query_of_row(uint r, uint i) { return mix(vec4(0.0), query_of(0, min(r, rows - 1), i), bvec4(r < rows)); }

void load_queries() {
    for (uint r = gl_LocalInvocationID.x; r < strips * m; r += lanes) largest[r] = 0;
    prepare_levels();
    barrier();
    for (uint i = gl_LocalInvocationID.x; i < strips * m * blocks; i += lanes) {
        uvec4 most = uvec4(0);
        for (uint j = 0; j < 8; j++) most = max(most, floatBitsToUint(query_of_row(i / blocks, i % blocks * 8 + j)) & 0x7fffffffu);
        atomicMax(largest[i / blocks], max(max(most.x, most.y), max(most.z, most.w)));
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

void store32(uint at, uint b, vec4 v[8]) {
    for (uint j = 0; j < 8; j++) vectors[at * stride + b * 8 + j] = f16vec4(v[j]);
}

// Returns the number of a key's vector; `first` is the first of its batch.
uint vector_of(uint key, uint first) { return vector_near(key, PAGE % batch == 0 ? first : key); }

// Load channels [32 b, 32 b + 32) of key, or value, number i of the batch, and its scale.
void load_key(uint at, uint i, uint b) {
    vec4 v[8], z[8];
    load32(k_type, p.k_codes, p.k_scales, at, b, v, z);
    store32(i, b, v);
    if (b == 0) key_scales[i] = scales_of(k_type, p.k_scales, at).x;
}
void load_value(uint at, uint i, uint b) {
    vec4 v[8], z[8];
    load32(v_type, p.v_codes, p.v_scales, at, b, v, z);
    float scale = scales_of(v_type, p.v_scales, at).x;
    if (!KV_IS_CODED(v_type)) { // an infinity or NaN goes into the scale, since a weight of 0 would not remove it
        uvec4 most = uvec4(0); // as bits: a NaN's are the greatest
        for (uint j = 0; j < 8; j++) most = max(most, floatBitsToUint(v[j]) & 0x7fffffffu);
        uint largest_of_all = max(max(most.x, most.y), max(most.z, most.w));
        for (uint x = 1; x < blocks; x <<= 1) largest_of_all = max(largest_of_all, subgroupShuffleXor(largest_of_all, x));
        if (largest_of_all > floatBitsToUint(65504.0)) {
            scale = uintBitsToFloat(0x7fc00000u);
            for (uint j = 0; j < 8; j++) v[j] = vec4(0.0);
        }
    }
    store32(batch + i, b, v);
    if (b == 0) value_scales[i] = scale;
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
    const uint r = own_row(), from = r * scores_stride, to = r * weights_stride;
    float row_most = row_max, most = 0.0;
    [[dont_unroll]] for (uint i = own_key(); i < batch; i += sharers) {
        const bool seen = r < rows && sees(r, first + i, end);
        const float score = seen ? scores[from + i] * (row_factor * key_scales[i]) : nothing;
        scores[from + i] = score;
        row_most = max(row_most, score);
    }
    for (uint x = 1; x < sharers; x <<= 1) row_most = max(row_most, subgroupShuffleXor(row_most, x));
    for (uint i = gl_SubgroupInvocationID; i < batch; i += subgroup)
        most = max(most, floatBitsToUint(value_scales[i]) <= floatBitsToUint(65504.0) ? value_scales[i] : 0.0);
    most = subgroupMax(most);
    const float next_unit = max(unit, most > 0.0 ? uintBitsToFloat((floatBitsToUint(most) & 0x7f800000u) + 0x800000u) : 0.0);
    const float shrink = exp(row_max - row_most), by = 16384.0 / next_unit;
    row_sum *= shrink;
    [[dont_unroll]] for (uint i = own_key(); i < batch; i += sharers) {
        const float weight = scores[from + i] == nothing ? 0.0 : exp(scores[from + i] - row_most);
        row_sum += weight;
        weights[to + i] = float16_t(weight == 0.0 ? 0.0 : weight * (value_scales[i] * by));
    }
    const float factor = shrink * (unit / next_unit);
    row_max = row_most;
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
    for (uint first = begin; first < end; first += batch) {
        for (uint i = gl_LocalInvocationID.x; i < batch * blocks; i += lanes)
            load_key(vector_of(min(first + i / blocks, end - 1), first), i / blocks, i % blocks);
        for (uint i = gl_LocalInvocationID.x; i < batch * blocks; i += lanes)
            load_value(vector_of(min(first + i / blocks, end - 1), first), i / blocks, i % blocks);
        barrier();
        multiply_keys();
        subgroupBarrier();
        shrink_sums(weigh(first, end));
        add_values();
        barrier();
    }
    store_parts();
}
