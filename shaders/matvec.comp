#version 440
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require
#extension GL_KHR_shader_subgroup_shuffle : require
#include "params.h"
#include "matvec_outputs.h"

// y = W x in fp32 (matvec.glsl). An invocation decodes `blocks` times 32 weights of a row at once, so that it waits for their
// loads together.
// once per weight format
// once more for texels
// once more for subgroups
layout(constant_id = 9) const uint blocks = 1;
#include "matvec.glsl"

// sums[row][column] += the products with weights 256 s + 32 j ...
void add_products(uint starts[rows], Header headers[rows], uint s, uint j, inout float sums[summed]) {
    vec4 inputs[8];
    if (columns == 1) {
        [[unroll]] for (uint i = 0; i < 8; i++) inputs[i] = uintBitsToFloat(x(x_start + s * 64 + j * 8 + i));
        const vec2 input_sums = sums_of(inputs);
        [[unroll]] for (uint r = 0; r < rows; r++) sums[r] += dot32(load32(starts[r], headers[r], s, j), inputs, input_sums);
        return;
    }
    Weights32 w[rows];
    [[unroll]] for (uint r = 0; r < rows; r++) w[r] = load32(starts[r], headers[r], s, j);
    [[unroll]] for (uint c = 0; c < columns; c++) {
        [[unroll]] for (uint i = 0; i < 8; i++) inputs[i] = uintBitsToFloat(x(x_start + c * (p.cols / 4) + s * 64 + j * 8 + i));
        const vec2 input_sums = sums_of(inputs);
        [[unroll]] for (uint r = 0; r < rows; r++) sums[r * columns + c] += dot32(w[r], inputs, input_sums);
    }
}

void multiply(uint starts[rows], uint lane, inout float sums[summed]) {
    Header headers[rows];
#ifdef TEXEL // one lane
    for (uint s = 0; s < (p.cols + 255) / 256; s++) {
        [[unroll]] for (uint r = 0; r < rows; r++) headers[r] = load_header(starts[r], p.cols, s);
        for (uint j = 0; j < min(8, p.cols / 32 - s * 8); j++) add_products(starts, headers, s, j, sums);
    }
#else
    [[unroll]] for (uint r = 0; r < rows; r++) headers[r] = load_header(starts[r], p.cols, 0);
    const uint count = p.cols / 32;
    uint b = lane;
    for (; b + (blocks - 1) * lanes < count; b += blocks * lanes)
        [[unroll]] for (uint i = 0; i < blocks; i++) add_products(starts, headers, (b + i * lanes) >> 3, (b + i * lanes) & 7, sums);
    if (blocks > 1)
        for (; b < count; b += lanes) add_products(starts, headers, b >> 3, b & 7, sums);
#endif
}
