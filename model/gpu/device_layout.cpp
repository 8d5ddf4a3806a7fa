#include "model/gpu/device_layout.h"
#include "base/ensure.h"
#include <cstring>

namespace tq::gpu {
namespace {

// A stretch of a block in the file.
struct Part {
    uint32_t from, bytes;
};

// Levels stay together in the order of the blocks; scales follow as one array, padded to 16 bytes.
struct Layout {
    Part levels;
    Part scale;        // bytes = 0: the block is kept whole
    uint32_t elements; // per block
    uint32_t bytes;    // per block in the file
};

Layout layout(GgmlType type) {
    switch (type) {
    case GgmlType::F32: return {{0, 4}, {}, 1, 4};
    case GgmlType::F16:
    case GgmlType::BF16: return {{0, 2}, {}, 1, 2};
    case GgmlType::Q8_0: return {{2, 32}, {0, 2}, 32, 34};
    case GgmlType::Q4_0: return {{2, 16}, {0, 2}, 32, 18};
    case GgmlType::Q4_K: return {{0, 144}, {}, 256, 144};
    case GgmlType::Q5_K: return {{0, 176}, {}, 256, 176};
    case GgmlType::Q6_K: return {{0, 208}, {208, 2}, 256, 210}; // low nibbles, high pairs, sub-block scales; d apart
    }
    ENSURE(false, "no device layout for {}", type_name(type));
}

uint64_t padded(uint64_t bytes) { return (bytes + 15) / 16 * 16; }

} // namespace

uint64_t device_row_bytes(GgmlType type, uint32_t cols) {
    const Layout l = layout(type);
    ENSURE(cols % 32 == 0 && cols % l.elements == 0, "{} columns of {}", cols, type_name(type));
    const uint64_t blocks = cols / l.elements;
    return blocks * (l.bytes - l.scale.bytes) + padded(blocks * l.scale.bytes);
}

void repack_rows(GgmlType type, std::span<std::byte> to, std::span<const std::byte> from, uint32_t rows, uint32_t cols) {
    const Layout l = layout(type);
    const uint64_t blocks = cols / l.elements, to_row = device_row_bytes(type, cols), from_row = blocks * l.bytes;
    ENSURE(to.size() == to_row * rows && from.size() == from_row * rows, "{} and {} bytes for {} rows", to.size(), from.size(),
           rows);
    if (l.scale.bytes == 0) {
        std::memcpy(to.data(), from.data(), from.size());
        return;
    }
    const uint32_t levels = l.levels.bytes;
    for (uint32_t r = 0; r < rows; r++) {
        const std::byte* block = from.data() + r * from_row;
        std::byte* level = to.data() + r * to_row;
        std::byte* scale = level + blocks * levels;
        std::memset(scale + blocks * l.scale.bytes, 0, padded(blocks * l.scale.bytes) - blocks * l.scale.bytes);
        for (uint64_t b = 0; b < blocks; b++, block += l.bytes, level += levels, scale += l.scale.bytes) {
            std::memcpy(level, block + l.levels.from, levels);
            std::memcpy(scale, block + l.scale.from, l.scale.bytes);
        }
    }
}

} // namespace tq::gpu
