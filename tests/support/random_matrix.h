// Matrices in every weight format, for products on the host.
#pragma once
#include "base/half.h"
#include "model/weights/tensor.h"
#include "tools/check/conformance/vectors/random.h"
#include <cstring>

namespace tq::test {

using conformance::Random;

inline void put_half(std::byte* p, float value) {
    const uint16_t half = float_to_half(value);
    std::memcpy(p, &half, 2);
}

// Sets the fp16 numbers of a block.
inline void put_scales(GgmlType type, std::byte* block, float scale, float minimum) {
    const BlockFormat& format = *block_format(type);
    if (type == GgmlType::F16) put_half(block, scale);
    if (format.scales.scale >= 0) set_block_scales(format, block, float_to_half(scale), float_to_half(minimum));
}

// From 1 / 4 to 15 / 4.
inline void put_nvfp4_scales(std::byte* block, Random& random) {
    for (int i = 0; i < 4; i++) block[i] = std::byte(0x30 + random.bits() % 32);
}

// Random levels and scales, all finite.
struct Matrix {
    std::vector<std::byte> bytes;
    Tensor tensor;

    Matrix(GgmlType type, uint32_t rows, uint32_t cols, Random& random) : bytes(row_bytes(type, cols) * rows) {
        for (std::byte& b : bytes) b = std::byte(random.bits());
        const BlockFormat& format = *block_format(type);
        for (size_t at = 0; at < bytes.size(); at += format.bytes) {
            const float value = random.normal();
            if (type == GgmlType::F32) std::memcpy(&bytes[at], &value, 4);
            if (type == GgmlType::BF16) std::memcpy(&bytes[at], reinterpret_cast<const char*>(&value) + 2, 2);
            if (type == GgmlType::MXFP4) bytes[at] = std::byte(112 + random.bits() % 16);
            if (type == GgmlType::NVFP4) put_nvfp4_scales(&bytes[at], random);
            const float scale = random.normal() / 64;
            put_scales(type, &bytes[at], scale, random.normal() / 64);
        }
        tensor = {"random", type, rows, cols, bytes};
        if (format.has_factor) tensor.factors = {random.normal() / 64};
    }
};

} // namespace tq::test
