#version 440
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require
#extension GL_EXT_spirv_intrinsics : require
#extension GL_KHR_shader_subgroup_shuffle : require
#include "params.h"
#include "matvec_outputs.h"

// y = W x in integers (matvec.glsl), for devices with int8 dot products. Eight groups of lanes have a workgroup's rows; in a step
// a lane has 32 columns of them, and the workgroup makes two digits of x for all lanes, as inputs_to_int8.comp does, each
// invocation of four columns. So x is read in long runs, once for a workgroup, and no byte of a weight becomes an fp32 number.
// The kernel is short because a small product takes as long as fetching its instructions (docs/measured-gpus.md).
// params: matvec_params
// once per weight format but f32 f16 bf16
#define SUBGROUP
#include "matvec.glsl"
#include "digits.glsl"

const float max_integer = 127 * 128 + 127;
const uint step_vectors = columns * lanes; // 32 columns of a vector each
shared uvec4 digits_of[2 * 4 * step_vectors]; // [step % 2][high 0-15, high 16-31, low 0-15, low 16-31][vector][lane]
shared vec4 inputs_of[2 * step_vectors];      // [step % 2][vector][lane]: the scale, and the sums of either half and of all

// Loads an invocation's four columns of a step, whose first block is `first`; past the last columns: these, never multiplied.
void load_inputs(uint first, out vec4 v[columns]) {
    const uint b = min(first + gl_LocalInvocationID.x / 8, p.cols / 32 - 1), k = gl_LocalInvocationID.x % 8;
    [[unroll]] for (uint c = 0; c < columns; c++) v[c] = uintBitsToFloat(x(x_start + c * (p.cols / 4) + b * 8 + k));
}

// Stores them as digits from vector `to` on. The fp32 number 3 * 2^22 + n has n in its low bits, rounded to the nearest.
void store_digits(uint to, vec4 v[columns]) {
    const float integers = 12582912.0;
    const uint k = gl_LocalInvocationID.x % 8;
    [[unroll]] for (uint c = 0; c < columns; c++) {
        const uvec4 magnitudes = floatBitsToUint(v[c]) & 0x7fffffffu;
        uint bits = max(max(magnitudes.x, magnitudes.y), max(magnitudes.z, magnitudes.w));
        [[unroll]] for (uint s = 1; s < 8; s *= 2) bits = max(bits, subgroupShuffleXor(bits, s));
        const float largest = uintBitsToFloat(bits), by = max_integer / largest;
        const uvec4 n = floatBitsToUint(v[c] * mix(by, 0.0, bits < 27u << 23 || bits >= 0x7f800000u) + integers);
        const uint block = c * lanes + gl_LocalInvocationID.x / 8, at = 4 * to + k / 4 * step_vectors + block;
        digits_of[at][k % 4] = ((n.x >> 7) & 0xffu) | ((n.y << 1) & 0xff00u) | ((n.z << 9) & 0xff0000u) | ((n.w << 17) & 0xff000000u);
        digits_of[at + 2 * step_vectors][k % 4] = (n.x & 0x7fu) | ((n.y << 8) & 0x7f00u) | ((n.z << 16) & 0x7f0000u) | ((n.w << 24) & 0x7f000000u);
        int sum = int((n.x + n.y) + (n.z + n.w) - 4 * floatBitsToUint(integers));
        sum += subgroupShuffleXor(sum, 1);
        sum += subgroupShuffleXor(sum, 2);
        const int other = subgroupShuffleXor(sum, 4);
        const float scale = uintBitsToFloat(bits >= 0x7f800000u ? 0x7fc00000u : floatBitsToUint(largest / max_integer));
        if (k == 0) inputs_of[to + block] = scale * vec4(1.0, sum, other, sum + other);
    }
}

void fetch_rows(uint starts[rows], uint b, out Raw32 raw[rows]) {
    [[unroll]] for (uint r = 0; r < rows; r++) raw[r] = fetch32(starts[r], load_header(starts[r], p.cols, b >> 3), b >> 3, b & 7);
}

// The loads of a step are issued before the step before it is multiplied.
void multiply(uint starts[rows], uint lane, inout float sums[summed]) {
    const uint last = p.cols / 32 - 1;
    vec4 ahead[columns];
    Raw32 raw[rows];
    load_inputs(0, ahead);
    fetch_rows(starts, min(lane, last), raw);
    uint to = 0;
    [[dont_unroll]] for (uint first = 0; first <= last; first += lanes) {
        store_digits(to, ahead);
        load_inputs(first + lanes, ahead);
        const uint b = min(first + lane, last);
        uvec4 w[rows][2];
        Scales32 scales[rows];
        [[unroll]] for (uint r = 0; r < rows; r++) {
            levels_as_bytes(raw[r], w[r]);
            scales[r] = scales32(raw[r], b >> 3, b & 7);
        }
        fetch_rows(starts, min(b + lanes, last), raw);
        barrier();
        if (first + lane <= last)
            [[unroll]] for (uint c = 0; c < columns; c++) {
                const uint at = c * lanes + lane;
                uvec4 digits[4];
                [[unroll]] for (uint i = 0; i < 4; i++) digits[i] = digits_of[4 * to + i * step_vectors + at];
                const vec4 inputs = inputs_of[to + at];
                [[unroll]] for (uint r = 0; r < rows; r++) add_product(sums[r * columns + c], w[r], scales[r], digits, inputs);
            }
        to = step_vectors - to;
    }
}
