// Every operation on floats is an addition, subtraction, multiplication, comparison or exact conversion, as in the shader.
#include "model/kv/blocks_codec.h"
#include "base/ensure.h"
#include "model/kv/exact.h"
#include <algorithm>
#include <cmath>

namespace tq {
namespace {

// Rounds x >= 0 below 2^24 to the nearest integer, halves up.
uint32_t round_half_up(float x) {
    const auto whole = uint32_t(x);
    return whole + (x - float(whole) >= 0.5f ? 1 : 0);
}

// Returns the fp16 bits of x * 2^e.
uint32_t scaled_half_bits(float x, int e) {
    return (x < 0 ? 0x8000u : 0u) | (x == 0 ? 0u : quotient_half_bits(std::fabs(x), 1, e));
}

} // namespace

uint32_t encode_q8_0(std::span<uint32_t> codes, std::span<const float> y, int e) {
    ENSURE(y.size() == ggml_block && codes.size() == y.size(), "{} elements, {} codes", y.size(), codes.size());
    float largest = 0;
    for (const float v : y)
        if (largest < std::fabs(v)) largest = std::fabs(v);
    const float scale = largest == 0 ? 0 : divide(largest, 127), inverse = largest == 0 ? 0 : divide(1, scale);
    for (size_t i = 0; i < y.size(); i++) {
        const float product = y[i] * inverse;
        const uint32_t magnitude = round_half_up(std::fabs(product));
        codes[i] = (product < 0 ? 0u - magnitude : magnitude) & 255;
    }
    return scaled_half_bits(scale, e);
}

uint32_t encode_q4_0(std::span<uint32_t> codes, std::span<const float> y, int e) {
    ENSURE(y.size() == ggml_block && codes.size() == y.size(), "{} elements, {} codes", y.size(), codes.size());
    float largest = 0;
    for (const float v : y)
        if (std::fabs(largest) < std::fabs(v)) largest = v;
    const float positive = largest == 0 ? 0 : divide(8, std::fabs(largest)), inverse = largest < 0 ? positive : -positive;
    for (size_t i = 0; i < y.size(); i++) {
        const float product = y[i] * inverse;
        codes[i] = std::min(uint32_t(product + 8.5f), 15u);
    }
    // ggml's -0 for a block of zeros included
    return (largest < 0 ? 0u : 0x8000u) | scaled_half_bits(std::fabs(largest) * 0.125f, e);
}

} // namespace tq
