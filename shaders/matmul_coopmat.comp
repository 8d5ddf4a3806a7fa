#version 460
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require
#extension GL_KHR_shader_subgroup_basic : require
#extension GL_KHR_memory_scope_semantics : require
#extension GL_KHR_cooperative_matrix : require
#extension GL_EXT_shader_explicit_arithmetic_types_float16 : require
#include "params.h"
#include "context.glsl"

// matmul.comp's product with cooperative matrices: weights and inputs are rounded to fp16, sums are fp32. One workgroup of 2 x
// 2 subgroups computes `tile_rows` rows of `tile_tokens` tokens, 32 columns at a time from shared memory, like
// matmul_tiled.comp. Each token's inputs have their own power of two (fp16_range.glsl): a token with an infinity or NaN gets
// NaNs.
// once per weight format but f32
// needs cooperative matrices
// params: matmul_params
layout(local_size_x_id = 0) in; // 4 subgroups
layout(constant_id = 0) const uint workgroup = 1;
layout(constant_id = 1) const uint tile_rows = 128;
layout(constant_id = 2) const uint tile_tokens = 64;
layout(constant_id = 3) const uint side = 16; // side of a matrix: rows, columns and tokens
layout(constant_id = 4) const uint accumulate = 0;
layout(constant_id = 5) const uint interleave = 1; // of the rows of the weights
layout(push_constant) uniform Push { matmul_params p; };
layout(binding = 0) buffer Y { float y[]; };
#define WEIGHTS_BINDING 1
#include "weights.glsl"
#include "fp16_range.glsl"
READ_VECTORS(2, x)
CONTEXT_AT(3);

const uint stride = 10; // a row or token is 8 vectors of four columns and two that keep neighbours in different banks
const uint subgroup = workgroup / 4;
const uint down = tile_rows / 2 / side, across = tile_tokens / 2 / side; // matrices per subgroup
shared f16vec4 w_tile[tile_rows * stride];
shared f16vec4 x_tile[tile_tokens * stride];
shared float results[4 * side * side];
shared uint largest[tile_tokens]; // fp32 bits of a token's largest magnitude

void find_largest(uint first_token) {
    const uint vectors = p.cols / 4, lanes = max(workgroup / tile_tokens, 1); // invocations that share a token
    for (uint t = gl_LocalInvocationID.x; t < tile_tokens; t += workgroup) largest[t] = 0;
    barrier();
    for (uint i = gl_LocalInvocationID.x; i < tile_tokens * lanes; i += workgroup) {
        const uint t = i / lanes, start = min(first_token + t, tokens - 1) * vectors;
        uvec4 most = uvec4(0);
        for (uint v = i % lanes; v < vectors; v += lanes) most = max(most, x(start + v) & 0x7fffffffu);
        atomicMax(largest[t], max(max(most.x, most.y), max(most.z, most.w)));
    }
    barrier();
}

// Loads columns 32 b ... of the weights of rows first_row ...; past the end: the last row, never stored.
void load_weights(uint first_row, uint b) {
    for (uint r = gl_LocalInvocationID.x; r < tile_rows; r += workgroup) {
        const uint start = row_start(min(first_row + r, p.rows - 1), p.cols);
        const Weights32 w = load32(start, load_header(start, p.cols, b >> 3), b >> 3, b & 7);
        [[unroll]] for (uint i = 0; i < 8; i++) w_tile[r * stride + i] = f16vec4(weights4(w, i));
    }
}

// Loads columns 32 b ... of x; past the end: the last token, never stored.
void load_inputs(uint first_token, uint b) {
    for (uint i = gl_LocalInvocationID.x; i < tile_tokens * 8; i += workgroup) {
        const uint t = min(first_token + i / 8, tokens - 1);
        const vec4 v = uintBitsToFloat(x(t * (p.cols / 4) + b * 8 + i % 8));
        x_tile[i / 8 * stride + i % 8] = f16vec4(v * to_fp16_range(largest[i / 8]));
    }
}

// Adds to y the matrix that this subgroup has in `results`, row by row within a token.
void store(uint first_row, uint first_token, uint tile_token) {
    for (uint i = gl_SubgroupInvocationID; i < side * side; i += subgroup) {
        const uint row = first_row + i % side, token = first_token + tile_token + i / side;
        if (row >= p.rows || token >= tokens) continue;
        const float sum = results[gl_SubgroupID * side * side + i] * from_fp16_range(largest[tile_token + i / side]);
        const uint at = token * p.y_cols + p.first_row + row;
        y[at] = accumulate != 0 ? y[at] + sum : sum;
    }
}

void main() {
    prepare_weights();
    const uint first_row = gl_WorkGroupID.x * tile_rows, first_token = gl_WorkGroupID.y * tile_tokens;
    if (first_token >= tokens) return;
    find_largest(first_token);
    const uint row = gl_SubgroupID % 2 * (tile_rows / 2), token = gl_SubgroupID / 2 * (tile_tokens / 2); // within the tile

    coopmat<float, gl_ScopeSubgroup, side, side, gl_MatrixUseAccumulator> sums[down * across];
    [[unroll]] for (uint i = 0; i < down * across; i++)
        sums[i] = coopmat<float, gl_ScopeSubgroup, side, side, gl_MatrixUseAccumulator>(0.0);
    for (uint b = 0; b < p.cols / 32; b++) {
        load_weights(first_row, b);
        load_inputs(first_token, b);
        barrier();
        [[unroll]] for (uint k = 0; k < 8; k += side / 4) {
            coopmat<float16_t, gl_ScopeSubgroup, side, side, gl_MatrixUseA> w[down];
            [[unroll]] for (uint i = 0; i < down; i++)
                coopMatLoad(w[i], w_tile, (row + i * side) * stride + k, stride, gl_CooperativeMatrixLayoutRowMajor);
            [[unroll]] for (uint j = 0; j < across; j++) {
                coopmat<float16_t, gl_ScopeSubgroup, side, side, gl_MatrixUseB> v;
                coopMatLoad(v, x_tile, (token + j * side) * stride + k, stride, gl_CooperativeMatrixLayoutColumnMajor);
                [[unroll]] for (uint i = 0; i < down; i++) sums[j * down + i] = coopMatMulAdd(w[i], v, sums[j * down + i]);
            }
        }
        barrier();
    }
    [[unroll]] for (uint j = 0; j < across; j++)
        [[unroll]] for (uint i = 0; i < down; i++) {
            coopMatStore(sums[j * down + i], results, gl_SubgroupID * side * side, side, gl_CooperativeMatrixLayoutColumnMajor);
            barrier();
            store(first_row + row + i * side, first_token, token + j * side);
            barrier();
        }
}
