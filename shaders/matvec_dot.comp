#version 460
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require
#extension GL_EXT_spirv_intrinsics : require
#extension GL_KHR_shader_subgroup_shuffle : require
#include "params.h"
#include "matvec_outputs.h"

// y = W x in integers (matvec.glsl), for devices with int8 dot products: the workgroup makes two digits of x, as inputs_to_int8.comp
// does, 32 `chunk` columns at a time, from which all its rows are multiplied. A weight takes a third of the instructions that it takes
// in fp32, and x is read in long runs, once for a workgroup.
// params: matvec_params
// once per weight format but f32 f16 bf16
layout(constant_id = 6) const uint chunk = 128; // columns * chunk * 8 is a multiple of `workgroup`
#define SUBGROUP
#include "matvec.glsl"
#include "digits.glsl"

// Of each chunk, eight invocations that follow each other have the four columns each of 32; an invocation has `share` times four.
const uint share = columns * chunk * 8 / workgroup;
const float most = 127 * 128 + 127;
shared uvec4 digits_of[4 * columns * chunk]; // [high 0-15, high 16-31, low 0-15, low 16-31][column][block]
shared vec4 inputs_of[columns * chunk];      // [column][block]: the scale, and the sums of either half and of all

// Loads the share of this invocation; past the last columns: these, never multiplied.
void load_share(uint first_block, out vec4 v[share]) {
    [[unroll]] for (uint n = 0; n < share; n++) {
        const uint i = n * workgroup + gl_LocalInvocationID.x, b = min(first_block + i / 8 % chunk, p.cols / 32 - 1);
        v[n] = uintBitsToFloat(x(x_start + i / (8 * chunk) * (p.cols / 4) + b * 8 + i % 8));
    }
}

// Stores it as digits. The fp32 number 3 * 2^22 + n has n in its low bits, rounded to the nearest.
void store_share(vec4 v[share]) {
    const float integers = 12582912.0;
    [[unroll]] for (uint n = 0; n < share; n++) {
        const uint i = n * workgroup + gl_LocalInvocationID.x, k = i % 8;
        const uvec4 magnitudes = floatBitsToUint(v[n]) & 0x7fffffffu;
        uint bits = max(max(magnitudes.x, magnitudes.y), max(magnitudes.z, magnitudes.w));
        [[unroll]] for (uint s = 1; s < 8; s *= 2) bits = max(bits, subgroupShuffleXor(bits, s));
        const float largest = uintBitsToFloat(bits);
        const float to_integers = bits < 27u << 23 || bits >= 0x7f800000u ? 0.0 : most / largest;
        const uvec4 number = floatBitsToUint(v[n] * to_integers + integers);
        const uint at = k / 4 * columns * chunk + i / 8;
        digits_of[at][k % 4] = ((number.x >> 7) & 0xffu) | ((number.y << 1) & 0xff00u) | ((number.z << 9) & 0xff0000u) | ((number.w << 17) & 0xff000000u);
        digits_of[at + 2 * columns * chunk][k % 4] = (number.x & 0x7fu) | ((number.y << 8) & 0x7f00u) | ((number.z << 16) & 0x7f0000u) | ((number.w << 24) & 0x7f000000u);
        int sum = int((number.x + number.y) + (number.z + number.w) - 4 * floatBitsToUint(integers));
        sum += subgroupShuffleXor(sum, 1);
        sum += subgroupShuffleXor(sum, 2);
        const int other = subgroupShuffleXor(sum, 4);
        const float scale = uintBitsToFloat(bits >= 0x7f800000u ? 0x7fc00000u : floatBitsToUint(largest / most));
        if (k == 0) inputs_of[i / 8] = scale * vec4(1.0, sum, other, sum + other);
    }
}

void fetch_rows(uint starts[rows], uint b, out Raw32 raw[rows]) {
    [[unroll]] for (uint r = 0; r < rows; r++) raw[r] = fetch32(starts[r], load_header(starts[r], p.cols, b >> 3), b >> 3, b & 7);
}

// The weights of a step, and the inputs of a chunk, are fetched before the step or chunk before is multiplied.
void multiply(uint starts[rows], uint lane, inout float sums[summed]) {
    const uint count = p.cols / 32;
    vec4 ahead[share];
    load_share(0, ahead);
    Raw32 raw[rows];
    uint b = lane;
    fetch_rows(starts, min(b, count - 1), raw);
    for (uint first = 0; first < count; first += chunk) {
        if (first != 0) barrier();
        store_share(ahead);
        if (first + chunk < count) load_share(first + chunk, ahead);
        barrier();
        const uint end = min(first + chunk, count);
        [[dont_unroll]] for (; b < end; b += lanes) {
            uvec4 w[rows][2];
            Scales32 scales[rows];
            [[unroll]] for (uint r = 0; r < rows; r++) {
                levels_as_bytes(raw[r], w[r]);
                scales[r] = scales32(raw[r], b >> 3, b & 7);
            }
            fetch_rows(starts, min(b + lanes, count - 1), raw);
            [[unroll]] for (uint c = 0; c < columns; c++) {
                const uint at = c * chunk + b - first;
                uvec4 digits[4];
                [[unroll]] for (uint i = 0; i < 4; i++) digits[i] = digits_of[i * columns * chunk + at];
                const vec4 inputs = inputs_of[at];
                [[unroll]] for (uint r = 0; r < rows; r++) add_product(sums[r * columns + c], w[r], scales[r], digits, inputs);
            }
        }
    }
}
