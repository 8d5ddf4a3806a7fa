#version 460
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require
#extension GL_KHR_shader_subgroup_shuffle : require
#include "params.h"
#include "matvec_outputs.h"

// y = W x, as `matvec_output` selects. A group of `lanes` invocations shares `rows` rows: many lanes read memory in long runs
// (GPUs), one lane needs no reduction (processors); several rows reuse each loaded x.
// once per weight format
// once more for texels
// once more for subgroups
layout(local_size_x_id = 0) in;
layout(constant_id = 0) const uint workgroup = 1;
layout(constant_id = 1) const uint lanes = 16; // in a subgroup variant a divisor of the subgroup size
layout(constant_id = 2) const uint rows = 2;   // even where the output is MATVEC_GATED
layout(constant_id = 3) const uint matvec_output = MATVEC_STORE;
layout(constant_id = 4) const uint interleave = 1; // of the rows of the weights
layout(constant_id = 5) const uint normed = 0;     // 1: x must still be divided by its rms; its sums of squares follow it
layout(push_constant) uniform Push { matvec_params p; };
layout(binding = 0) buffer Y { float y[]; };
#define WEIGHTS_BINDING 1
#include "weights.glsl"
#include "rms.glsl"
READ_VECTORS(2, x)
#ifndef TEXEL
layout(binding = 3) readonly buffer NextNorm { float next_norm[]; };
#endif

#ifdef SUBGROUP
// Adds up the sums of all lanes of a group.
void add_lanes(inout float sums[rows]) {
    [[unroll]] for (uint r = 0; r < rows; r++)
        for (uint s = lanes / 2; s > 0; s >>= 1) sums[r] += subgroupShuffleXor(sums[r], s);
}
#else
shared float lane_sums[rows * workgroup];
void add_lanes(inout float sums[rows]) {
    if (lanes == 1) return;
    const uint self = gl_LocalInvocationID.x, first = self / lanes * lanes;
    [[unroll]] for (uint r = 0; r < rows; r++) lane_sums[r * workgroup + self] = sums[r];
    barrier();
    [[unroll]] for (uint r = 0; r < rows; r++) {
        sums[r] = 0.0;
        for (uint i = 0; i < lanes; i++) sums[r] += lane_sums[r * workgroup + first + i];
    }
    barrier();
}
#endif

// sums += the products of columns 256 s + 32 j ...
void add_products(uint starts[rows], Header headers[rows], uint s, uint j, inout float sums[rows]) {
    vec4 inputs[8];
    [[unroll]] for (uint i = 0; i < 8; i++) inputs[i] = uintBitsToFloat(x(s * 64 + j * 8 + i));
    const vec2 input_sums = sums_of(inputs);
    [[unroll]] for (uint r = 0; r < rows; r++) sums[r] += dot32(load32(starts[r], headers[r], s, j), inputs, input_sums);
}

void multiply(uint starts[rows], uint lane, inout float sums[rows]) {
    Header headers[rows];
#ifdef TEXEL // one lane
    for (uint s = 0; s < (p.cols + 255) / 256; s++) {
        [[unroll]] for (uint r = 0; r < rows; r++) headers[r] = load_header(starts[r], p.cols, s);
        for (uint j = 0; j < min(8, p.cols / 32 - s * 8); j++) add_products(starts, headers, s, j, sums);
    }
#else
    for (uint b = lane; b < p.cols / 32; b += lanes) {
        [[unroll]] for (uint r = 0; r < rows; r++) headers[r] = load_header(starts[r], p.cols, b >> 3);
        add_products(starts, headers, b >> 3, b & 7, sums);
    }
#endif
}

#ifndef TEXEL
// Returns 1 / rms of the vector whose sums of squares are in x[squares ...].
float inverse_rms_of_x(uint lane) {
    float sums[rows];
    [[unroll]] for (uint r = 0; r < rows; r++) sums[r] = 0.0;
    for (uint i = lane; i < (p.square_count + 3) / 4; i += lanes) {
        const vec4 four = uintBitsToFloat(x(p.squares / 4 + i));
        for (uint j = 0; j < 4; j++) sums[0] += 4 * i + j < p.square_count ? four[j] : 0.0;
    }
    add_lanes(sums);
    return inverse_rms_of(sums[0] / float(p.cols) + p.eps);
}

shared float group_squares[workgroup / lanes];

// y[squares + the workgroup's number] = the sum of all groups' `squares`.
void store_squares(uint lane, uint group, float squares) {
    if (lane == 0) group_squares[group] = squares;
    barrier();
    if (gl_LocalInvocationID.x != 0) return;
    float sum = 0.0;
    for (uint i = 0; i < workgroup / lanes; i++) sum += group_squares[i];
    y[p.squares + gl_WorkGroupID.x] = sum;
}
#endif

float silu(float g) { return g / (1.0 + exp(-g)); }

void main() {
    prepare_weights();
    const uint lane = gl_LocalInvocationID.x % lanes, group = gl_LocalInvocationID.x / lanes;
    const uint first = (gl_WorkGroupID.x * (workgroup / lanes) + group) * rows;

    uint starts[rows];
    float sums[rows];
    [[unroll]] for (uint r = 0; r < rows; r++) {
        starts[r] = row_start(min(first + r, p.rows - 1), p.cols); // past the end: the last row, never stored
        sums[r] = 0.0;
    }
    multiply(starts, lane, sums);
    add_lanes(sums);
#ifndef TEXEL
    if (normed != 0) {
        const float by = inverse_rms_of_x(lane);
        [[unroll]] for (uint r = 0; r < rows; r++) sums[r] *= by;
    }
#endif

    float squares = 0.0;
    if (lane == 0)
        [[unroll]] for (uint r = 0; r < rows; r++) {
            const uint at = p.first_row + first + r;
            if (first + r >= p.rows) break;
            if (matvec_output == MATVEC_GATED) {
                if ((r & 1) == 0) y[at / 2] = silu(sums[r]) * sums[min(r + 1, rows - 1)];
                continue;
            }
            const float value = matvec_output == MATVEC_STORE ? sums[r] : y[at] + sums[r];
            y[at] = value;
#ifndef TEXEL
            if (matvec_output == MATVEC_RESIDUAL) {
                y[p.scaled + at] = value * next_norm[at];
                squares += value * value;
            }
#endif
        }
#ifndef TEXEL
    if (matvec_output == MATVEC_RESIDUAL) store_squares(lane, group, squares);
#endif
}
