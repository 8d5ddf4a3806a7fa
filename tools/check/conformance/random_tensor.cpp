// Random weights in any block format. Blocks are random bits, so every code occurs, with a scale that makes the weights about
// normal; sums then stay small enough for SwiGLU, which multiplies errors. Formats whose scale has bits with a special meaning
// (NVFP4, MXFP4) get theirs by hand, including values that decoders treat otherwise.
#include "base/half.h"
#include "model/weights/synthetic/synthetic_rows.h"
#include "tools/check/conformance/rig.h"
#include <bit>
#include <cmath>
#include <cstring>

namespace tq::conformance {
namespace {

void store_half(std::byte* to, float v) {
    const uint16_t bits = float_to_half(v);
    std::memcpy(to, &bits, 2);
}

void fill_random(std::span<std::byte> to, Random& random) {
    for (size_t i = 0; i < to.size(); i += 8) {
        const uint64_t bits = random.bits();
        std::memcpy(&to[i], &bits, std::min<size_t>(8, to.size() - i));
    }
}

// Mostly from 1 / 4 to 15 / 4; rarely less than all normal numbers, or the code that is NaN elsewhere; the upper bit has no
// meaning.
std::byte nvfp4_scale_byte(Random& random) {
    const uint64_t kind = random.below(16), upper = random.below(2) << 7;
    return std::byte(upper | (kind == 0 ? random.below(8) : kind == 1 && upper == 0 ? 0x7f : 0x30 + random.below(32)));
}

// Gives the first 16 weights the largest scale, 127 with the upper bit set: all are 0 but one, so that it does not rule a sum.
void set_largest_nvfp4_scale(std::span<std::byte> block) {
    block[0] = std::byte(0xff);
    for (std::byte& two : block.subspan(4, 8)) two = {};
    block[4] = std::byte(1);
}

// Fills a block: if it is a single number, with a normally distributed one; else with random bits, and a normally distributed
// scale of standard deviation 1 / `deviation` (a minimum's is BlockScales::ratio times that; MXFP4's is one of eight powers of
// two).
void fill_block(GgmlType type, std::span<std::byte> block, Random& random, double deviation) {
    const float value = random.normal();
    const auto bits = std::bit_cast<uint32_t>(value);
    switch (type) {
    case GgmlType::F32: std::memcpy(block.data(), &bits, 4); return;
    case GgmlType::F16: store_half(block.data(), value); return;
    case GgmlType::BF16: {
        const auto upper = uint16_t(bits >> 16);
        std::memcpy(block.data(), &upper, 2);
        return;
    }
    default: fill_random(block, random);
    }
    if (type == GgmlType::MXFP4) {
        block[0] = std::byte(121 + random.below(8));
        return;
    }
    if (type == GgmlType::NVFP4) {
        for (std::byte& scale : block.first(4)) scale = nvfp4_scale_byte(random);
        return;
    }
    const BlockFormat& format = *block_format(type);
    const float minimum = format.scales.minimum >= 0 ? random.normal() * format.scales.ratio / float(deviation) : 0;
    set_block_scales(format, block.data(), float_to_half(value / float(deviation)), float_to_half(minimum));
}

} // namespace

RandomTensor::RandomTensor(Random& random, GgmlType type, uint32_t rows, uint32_t cols, int exponent)
    : bytes(row_bytes(type, cols) * rows) {
    const uint32_t block = block_format(type)->bytes;
    const bool plain = block_format(type)->elements == 1 || type == GgmlType::MXFP4 || type == GgmlType::NVFP4;
    const double deviation =
        plain ? 1 : std::ldexp(4 * block_deviation(type), -exponent); // keeps sums small: SwiGLU multiplies their errors
    for (size_t at = 0; at < bytes.size(); at += block) fill_block(type, {&bytes[at], block}, random, deviation);
    if (type == GgmlType::NVFP4) set_largest_nvfp4_scale({&bytes[bytes.size() - block], block});
    tensor = {"random", type, rows, cols, bytes};
    if (block_format(type)->has_factor) tensor.factors = {random.normal() / 16};
}

} // namespace tq::conformance
