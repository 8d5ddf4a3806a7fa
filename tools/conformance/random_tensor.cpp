#include "base/half.h"
#include "tools/conformance/rig.h"
#include <bit>
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

// Scales in proportion to the formats' levels; everything else is any bits.
void fill_block(GgmlType type, std::span<std::byte> block, Random& random) {
    const float value = random.normal();
    const auto bits = std::bit_cast<uint32_t>(value);
    if (type != GgmlType::F32 && type != GgmlType::F16 && type != GgmlType::BF16) fill_random(block, random);
    switch (type) {
    case GgmlType::F32: std::memcpy(block.data(), &bits, 4); break;
    case GgmlType::F16: store_half(block.data(), value); break;
    case GgmlType::BF16: {
        const auto upper = uint16_t(bits >> 16);
        std::memcpy(block.data(), &upper, 2);
        break;
    }
    case GgmlType::Q8_0:
    case GgmlType::Q4_0:
    case GgmlType::Q5_0:
    case GgmlType::IQ4_NL: store_half(block.data(), value / 64); break;
    case GgmlType::Q4_1:
    case GgmlType::Q5_1:
        store_half(block.data(), value / 16);
        store_half(block.data() + 2, random.normal());
        break;
    case GgmlType::MXFP4: block[0] = std::byte(121 + random.below(8)); break;
    case GgmlType::Q2_K:
        store_half(block.data() + 80, value / 32);
        store_half(block.data() + 82, value / 16);
        break;
    case GgmlType::Q3_K: store_half(block.data() + 108, value / 64); break;
    case GgmlType::IQ4_XS: store_half(block.data(), value / 1024); break;
    case GgmlType::Q4_K:
    case GgmlType::Q5_K:
        store_half(block.data(), value / 512);
        store_half(block.data() + 2, value / 64);
        break;
    case GgmlType::Q6_K: store_half(block.data() + 208, value / 2048); break;
    }
}

} // namespace

RandomTensor::RandomTensor(Random& random, GgmlType type, uint32_t rows, uint32_t cols) : bytes(row_bytes(type, cols) * rows) {
    const uint32_t block = block_format(type)->bytes;
    for (size_t at = 0; at < bytes.size(); at += block) fill_block(type, {&bytes[at], block}, random);
    tensor = {"random", type, rows, cols, bytes};
}

} // namespace tq::conformance
