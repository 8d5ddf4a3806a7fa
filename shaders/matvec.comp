#version 460
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require
#include "params.h"

// y[first_row + r] (+)= W[r] . x. A group of `lanes` invocations shares `rows` rows at a time: many lanes read memory in long runs
// (GPUs), one lane needs no reduction (processors); several rows reuse each x that was read.
// once per weight format
// once more for SIMD
layout(local_size_x_id = 0) in;
layout(constant_id = 1) const uint lanes = 16;
layout(constant_id = 2) const uint rows = 2;
layout(constant_id = 3) const uint accumulate = 0;
layout(constant_id = 4) const uint interleave = 1; // of the rows of the weights
layout(push_constant) uniform Push { matvec_params p; };
layout(binding = 0) buffer Y { float y[]; };
#define WEIGHTS_BINDING 1
#include "weights.glsl"
READ_VECTORS(2, x)

shared float partial_sums[rows * gl_WorkGroupSize.x];

// sums += the products of columns 256 s + 32 j ...
void add_products(uint starts[rows], Header headers[rows], uint s, uint j, inout float sums[rows]) {
    vec4 inputs[8];
    [[unroll]] for (uint i = 0; i < 8; i++) inputs[i] = uintBitsToFloat(x(s * 64 + j * 8 + i));
    const vec2 input_sums = sums_of(inputs);
    [[unroll]] for (uint r = 0; r < rows; r++) sums[r] += dot32(load32(starts[r], headers[r], s, j), inputs, input_sums);
}

void main() {
    prepare_weights();
    const uint lane = gl_LocalInvocationID.x % lanes;
    const uint groups = gl_WorkGroupSize.x / lanes; // one has rows first, first + groups, ...
    const uint first = gl_WorkGroupID.x * groups * rows + gl_LocalInvocationID.x / lanes;

    uint starts[rows];
    float sums[rows];
    [[unroll]] for (uint r = 0; r < rows; r++) {
        starts[r] = row_start(min(first + r * groups, p.rows - 1), p.cols); // past the end: the last row, never stored
        sums[r] = 0.0;
    }
    Header headers[rows];
#ifdef SIMD // one lane
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

    if (lanes > 1) {
        [[unroll]] for (uint r = 0; r < rows; r++) partial_sums[r * gl_WorkGroupSize.x + gl_LocalInvocationID.x] = sums[r];
        barrier();
        if (lane != 0) return;
        [[unroll]] for (uint r = 0; r < rows; r++)
            for (uint i = 1; i < lanes; i++) sums[r] += partial_sums[r * gl_WorkGroupSize.x + gl_LocalInvocationID.x + i];
    }
    [[unroll]] for (uint r = 0; r < rows; r++)
        if (first + r * groups < p.rows) {
            const uint at = p.first_row + first + r * groups;
            y[at] = accumulate != 0 ? y[at] + sums[r] : sums[r];
        }
}
