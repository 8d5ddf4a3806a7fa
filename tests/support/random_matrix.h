// Matrices in every weight format, for products on the host.
#pragma once
#include "base/half.h"
#include "model/weights/tensor.h"
#include "tools/conformance/random.h"
#include <cstring>

namespace tq::test {

using conformance::Random;

inline void put_half(std::byte* p, float value) {
    const uint16_t half = float_to_half(value);
    std::memcpy(p, &half, 2);
}

// The byte offsets of the fp16 numbers in a block.
inline std::vector<size_t> halves_of(GgmlType type) {
    if (type == GgmlType::F16) return {0};
    std::vector<size_t> all;
    const BlockScales& scales = block_format(type)->scales;
    for (const int at : {scales.scale, scales.minimum})
        if (at >= 0) all.push_back(size_t(at));
    return all;
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
            for (const size_t half : halves_of(type)) put_half(&bytes[at + half], random.normal() / 64);
        }
        tensor = {"random", type, rows, cols, bytes};
    }
};

} // namespace tq::test
