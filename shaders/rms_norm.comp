#version 440
#extension GL_GOOGLE_include_directive : require
#include "params.h"
#include "context.glsl"

// y[t] = w * x[t] / sqrt(mean(x[t]^2) + eps). One workgroup per row; in the head, of the rows of x that head_row() gives.
layout(local_size_x_id = 0) in;
layout(constant_id = 0) const uint workgroup = 1;
layout(push_constant) uniform Push { rms_norm_params p; };
layout(binding = 0) writeonly buffer Y { float y[]; };
layout(binding = 1) readonly buffer X { float x[]; };
layout(binding = 2) readonly buffer W { float w[]; };
CONTEXT_AT(3)
#include "reduce.glsl"
#include "rms.glsl"

void main() {
    const uint out_row = gl_WorkGroupID.x;
    if (out_row >= tokens) return;
    const uint row = (p.in_head != 0 ? head_row(out_row) : out_row) * p.cols;

    float ss = 0.0;
    for (uint i = gl_LocalInvocationID.x; i < p.cols; i += workgroup) ss += x[row + i] * x[row + i];

    const float scale = inverse_rms_of(workgroup_sum(ss) / float(p.cols) + p.eps);
    for (uint i = gl_LocalInvocationID.x; i < p.cols; i += workgroup)
        y[out_row * p.y_cols + p.y_first + i] = x[row + i] * scale * w[i];
}
