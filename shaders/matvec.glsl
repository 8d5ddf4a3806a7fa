// y[first_row + r] (+)= W[r] . x. A group of `lanes` invocations shares a row, so a workgroup makes size / lanes rows: many lanes
// per row read memory in long runs (GPUs), one lane per row needs no reduction and reads x uniformly (CPU drivers).
#extension GL_EXT_control_flow_attributes : require
#include "params.h"

layout(local_size_x_id = 0) in;
layout(constant_id = 1) const uint lanes = 16;
layout(constant_id = 2) const uint accumulate = 0;
layout(push_constant) uniform Push { matvec_params p; };
layout(binding = 0) buffer Y { float y[]; };
#define WEIGHTS_BINDING 1
#include "weights.glsl"
layout(binding = 2) readonly buffer X { vec4 x[]; };

shared float partial_sums[gl_WorkGroupSize.x];

void main() {
    const uint lane = gl_LocalInvocationID.x % lanes;
    const uint row = gl_WorkGroupID.x * (gl_WorkGroupSize.x / lanes) + gl_LocalInvocationID.x / lanes;

    float sum = 0.0;
    if (row < p.rows) {
        const uint base = row * row_vectors(p.cols);
        for (uint b = lane; b < p.cols / 32; b += lanes) {
            vec4 w[8], products = vec4(0.0);
            load32(base, p.cols, b, w);
            [[unroll]] for (uint i = 0; i < 8; i++) products += w[i] * x[b * 8 + i];
            sum += (products.x + products.y) + (products.z + products.w);
        }
    }
    if (lanes > 1) {
        partial_sums[gl_LocalInvocationID.x] = sum;
        barrier();
        if (lane != 0) return;
        for (uint i = 1; i < lanes; i++) sum += partial_sums[gl_LocalInvocationID.x + i];
    }
    if (row < p.rows) y[p.first_row + row] = accumulate != 0 ? y[p.first_row + row] + sum : sum;
}
