#version 460
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require
#extension GL_KHR_shader_subgroup_basic : require
#extension GL_KHR_memory_scope_semantics : require
#extension GL_KHR_cooperative_matrix : require
#extension GL_EXT_shader_explicit_arithmetic_types_float16 : require
#include "params.h"
#include "each_matrix.glsl"

// matmul.comp's product with cooperative matrices: weights are rounded to fp16, as inputs_to_fp16.comp has done with x, sums are
// fp32. One workgroup of `row_subgroups` x some subgroups computes `tile_rows` rows of `tile_tokens` tokens, 32 `blocks` columns
// at a time from shared memory, like matmul_tiled.comp. A token with an infinity or NaN gets NaNs.
// How decoding and multiplying overlap. A step of columns is fetched into registers, decoded into shared memory, and multiplied.
// With `ahead` 0 or 1 all subgroups decode, wait, multiply and wait, so that matrix units rest while weights are decoded. With 2
// there are two pairs of tiles: a subgroup decodes the next step into one and multiplies this step from the other, and waits once
// for both.
// once per weight format but f32
// needs cooperative matrices
// params: matmul_coopmat_params
layout(local_size_x_id = 0) in;
layout(constant_id = 0) const uint workgroup = 1;
layout(constant_id = 1) const uint tile_rows = 128;
layout(constant_id = 2) const uint tile_tokens = 64;
layout(constant_id = 3) const uint m = 16; // a matrix of weights has m rows and k columns, one of sums n tokens
layout(constant_id = 4) const uint n = 16;
layout(constant_id = 5) const uint k = 16;
layout(constant_id = 6) const uint blocks = 1; // every invocation decodes one if workgroup is tile_rows * blocks
layout(constant_id = 7) const uint subgroup = 32; // invocations of one
layout(constant_id = 8) const uint row_subgroups = 2;
layout(constant_id = 9) const uint ahead = 1; // 1: the next columns are fetched while these are multiplied; 2: decoded, too
layout(constant_id = 10) const uint accumulate = 0;
layout(constant_id = 11) const uint interleave = 1; // of the rows of the weights
layout(constant_id = 12) const uint experts = 0; // 1: the matrix is a stack of experts' matrices (rows.glsl)
layout(push_constant) uniform Push { matmul_coopmat_params p; };
layout(binding = 0) buffer Y { float y[]; };
#define WEIGHTS_BINDING 1
#include "weights.glsl"
#include "fp16_range.glsl"
READ_VECTORS(2, x) // 8 halves
layout(binding = 2) readonly buffer XWords { uint x_words[]; };
#define ROWS_TILE tile_tokens
#include "rows.glsl"

const uint stride = 8 * blocks + 2; // vectors of four columns of a row or token; two more keep neighbours in different banks
const uint subgroups = workgroup / subgroup;
const uint own_rows = tile_rows / row_subgroups, own_tokens = tile_tokens * row_subgroups / subgroups; // of a subgroup
const uint down = own_rows / m, across = own_tokens / n; // its matrices
const uint tiles = ahead == 2 ? 2 : 1;
shared f16vec4 w_tile[tiles * tile_rows * stride];
shared f16vec4 x_tile[tiles * tile_tokens * stride];
shared float results[subgroups * m * n];

// Weights and inputs that an invocation has fetched of the next columns: `turns` times 32 weights, and vectors of x.
const uint turns = (tile_rows * blocks + workgroup - 1) / workgroup, inputs = tile_tokens * 4 * blocks,
           input_turns = (inputs + workgroup - 1) / workgroup;
Raw32 next_w[turns];
uvec4 next_x[input_turns];

// Fetches columns 32 b ... of rows first_row ... and of tokens first_token .... Past the last row or token it fetches the last
// one, whose results are not stored; past the last columns these again.
void fetch(uint first_row, uint first_token, uint b) {
    [[unroll]] for (uint turn = 0; turn < turns; turn++) {
        const uint i = gl_LocalInvocationID.x + turn * workgroup, at = min(b + i % blocks, p.cols / 32 - 1);
        const uint start = row_start(matrix_row + min(first_row + i / blocks, row_count - 1), p.cols);
        next_w[turn] = fetch32(start, load_header(start, p.cols, at >> 3), at >> 3, at & 7);
    }
    const uint row = 4 * blocks, end = p.cols / 8; // vectors of 8 columns
    [[unroll]] for (uint turn = 0; turn < input_turns; turn++) {
        const uint i = gl_LocalInvocationID.x + turn * workgroup, t = x_row(first_token + i / row);
        next_x[turn] = x(t * end + min(b * 4 + i % row, end - 1));
    }
}

// Decodes them into a tile in shared memory; past the last columns: weights of 0.
void store_next(uint b, uint tile) {
    [[unroll]] for (uint turn = 0; turn < turns; turn++) {
        const uint i = gl_LocalInvocationID.x + turn * workgroup, at = min(b + i % blocks, p.cols / 32 - 1);
        const uint to = (tile * tile_rows + i / blocks) * stride + i % blocks * 8;
        if (i >= tile_rows * blocks) continue;
        const bool beyond = blocks > 1 && b + i % blocks >= p.cols / 32;
        const Weights32 w = decode32(next_w[turn], at >> 3, at & 7);
        [[unroll]] for (uint j = 0; j < 8; j++) w_tile[to + j] = beyond ? f16vec4(0.0) : f16vec4(weights4(w, j));
    }
    [[unroll]] for (uint turn = 0; turn < input_turns; turn++) {
        const uint i = gl_LocalInvocationID.x + turn * workgroup;
        const uint to = (tile * tile_tokens + i / (4 * blocks)) * stride + i % (4 * blocks) * 2;
        if (i >= inputs) continue;
        x_tile[to] = f16vec4(unpackFloat2x16(next_x[turn].x), unpackFloat2x16(next_x[turn].y));
        x_tile[to + 1] = f16vec4(unpackFloat2x16(next_x[turn].z), unpackFloat2x16(next_x[turn].w));
    }
}

// Adds to y the matrix that this subgroup has in `results`, row by row within a token.
void store(uint first_row, uint first_token) {
    [[dont_unroll]] for (uint i = gl_SubgroupInvocationID; i < m * n; i += subgroup) {
        const uint row = first_row + i % m, token = first_token + i / m;
        if (row >= row_count || token >= end_token) continue;
        const float sum = results[gl_SubgroupID * m * n + i] * from_fp16_range(x_words[p.largest + x_row(token)]);
        const uint at = y_start(token) + row;
        y[at] = accumulate != 0 ? y[at] + sum : sum;
    }
}

void main() {
    prepare_weights();
    const uint first_row = gl_WorkGroupID.x * tile_rows;
    if (!find_tile()) return;
    // within the tile
    const uint row = gl_SubgroupID % row_subgroups * own_rows, token = gl_SubgroupID / row_subgroups * own_tokens;

    coopmat<float, gl_ScopeSubgroup, m, n, gl_MatrixUseAccumulator> sums[down * across];
    [[unroll]] for (uint i = 0; i < down * across; i++) sums[i] = coopmat<float, gl_ScopeSubgroup, m, n, gl_MatrixUseAccumulator>(0.0);
    if (ahead != 0) fetch(first_row, first_token, 0);
    if (ahead == 2) {
        store_next(0, 0);
        fetch(first_row, first_token, blocks);
        barrier();
    }
    for (uint b = 0; b < p.cols / 32; b += blocks) {
        const uint tile = ahead == 2 ? b / blocks % 2 : 0; // past the last columns it fetches these again, in vain
        if (ahead == 2) {
            store_next(b + blocks, 1 - tile);
            fetch(first_row, first_token, b + 2 * blocks);
        } else {
            if (ahead == 0) fetch(first_row, first_token, b);
            store_next(b, 0);
            barrier();
            if (ahead == 1) fetch(first_row, first_token, b + blocks);
        }
        const uint first_w = (tile * tile_rows + row) * stride, first_x = (tile * tile_tokens + token) * stride;
        [[unroll]] for (uint at = 0; at < 8 * blocks; at += k / 4) {
            coopmat<float16_t, gl_ScopeSubgroup, m, k, gl_MatrixUseA> w[down];
            [[unroll]] for (uint i = 0; i < down; i++)
                coopMatLoad(w[i], w_tile, first_w + i * m * stride + at, stride, gl_CooperativeMatrixLayoutRowMajor);
            [[unroll]] for (uint j = 0; j < across; j++) {
                coopmat<float16_t, gl_ScopeSubgroup, k, n, gl_MatrixUseB> v;
                coopMatLoad(v, x_tile, first_x + j * n * stride + at, stride, gl_CooperativeMatrixLayoutColumnMajor);
                [[unroll]] for (uint i = 0; i < down; i++) sums[j * down + i] = coopMatMulAdd(w[i], v, sums[j * down + i]);
            }
        }
        barrier();
    }
#define STORE(i)                                                                                                                 \
    if (i < down * across) {                                                                                                     \
        coopMatStore(sums[min(i, down * across - 1)], results, gl_SubgroupID * m * n, m, gl_CooperativeMatrixLayoutColumnMajor); \
        barrier();                                                                                                               \
        store(first_row + row + i % down * m, first_token + token + i / down * n);                                               \
        barrier();                                                                                                               \
    }
    EACH_MATRIX(STORE)
}
