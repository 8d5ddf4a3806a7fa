#version 460
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require
#include "params.h"

// y[first_row + r] (+)= W[r] . x. A group of `lanes` invocations shares `rows` rows at a time: many lanes read memory in long runs
// (GPUs), one lane needs no reduction (CPU drivers); several rows reuse each x that was read.
// once per weight format
layout(local_size_x_id = 0) in;
layout(constant_id = 1) const uint lanes = 16;
layout(constant_id = 2) const uint rows = 2;
layout(constant_id = 3) const uint accumulate = 0;
layout(push_constant) uniform Push { matvec_params p; };
layout(binding = 0) buffer Y { float y[]; };
#define WEIGHTS_BINDING 1
#include "weights.glsl"
layout(binding = 2) readonly buffer X { vec4 x[]; };

shared float partial_sums[rows * gl_WorkGroupSize.x];

void main() {
    prepare_weights();
    const uint lane = gl_LocalInvocationID.x % lanes;
    const uint first = (gl_WorkGroupID.x * (gl_WorkGroupSize.x / lanes) + gl_LocalInvocationID.x / lanes) * rows;

    float sums[rows];
    [[unroll]] for (uint r = 0; r < rows; r++) sums[r] = 0.0;
    for (uint b = lane; b < p.cols / 32; b += lanes) {
        vec4 inputs[8];
        [[unroll]] for (uint i = 0; i < 8; i++) inputs[i] = x[b * 8 + i];
        [[unroll]] for (uint r = 0; r < rows; r++) {
            vec4 w[8], products = vec4(0.0);
            load32(min(first + r, p.rows - 1) * row_vectors(p.cols), p.cols, b, w); // past the end: the last row, never stored
            [[unroll]] for (uint i = 0; i < 8; i++) products += w[i] * inputs[i];
            sums[r] += (products.x + products.y) + (products.z + products.w);
        }
    }
    if (lanes > 1) {
        [[unroll]] for (uint r = 0; r < rows; r++) partial_sums[r * gl_WorkGroupSize.x + gl_LocalInvocationID.x] = sums[r];
        barrier();
        if (lane != 0) return;
        [[unroll]] for (uint r = 0; r < rows; r++)
            for (uint i = 1; i < lanes; i++) sums[r] += partial_sums[r * gl_WorkGroupSize.x + gl_LocalInvocationID.x + i];
    }
    [[unroll]] for (uint r = 0; r < rows; r++)
        if (first + r < p.rows) {
            const uint at = p.first_row + first + r;
            y[at] = accumulate != 0 ? y[at] + sums[r] : sums[r];
        }
}
