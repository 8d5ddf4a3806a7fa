#include "model/gpu/device_layout.h"
#include "base/ensure.h"
#include "base/sizes.h"
#include <cstring>
#include <vector>

namespace tq::gpu {
namespace {

const BlockFormat& layout(GgmlType type) {
    const BlockFormat* format = block_format(type);
    ENSURE(format != nullptr && format->parts[0].bytes != 0, "no device layout for {}", type_name(type));
    return *format;
}

template <size_t bytes> void gather(std::byte* to, const std::byte* from, uint64_t count, uint32_t stride) {
    for (uint64_t i = 0; i < count; i++) std::memcpy(to + i * bytes, from + i * stride, bytes);
}

// to[count][part.bytes] = that part of each block. Most sizes are compile-time constants: calls would take longer than copies.
void gather(std::byte* to, const std::byte* from, uint64_t count, uint32_t stride, BlockPart part) {
    from += part.from;
    switch (part.bytes) {
    case 1: return gather<1>(to, from, count, stride);
    case 2: return gather<2>(to, from, count, stride);
    case 4: return gather<4>(to, from, count, stride);
    case 8: return gather<8>(to, from, count, stride);
    case 12: return gather<12>(to, from, count, stride);
    case 16: return gather<16>(to, from, count, stride);
    case 32: return gather<32>(to, from, count, stride);
    case 80: return gather<80>(to, from, count, stride);
    case 96: return gather<96>(to, from, count, stride);
    case 128: return gather<128>(to, from, count, stride);
    case 208: return gather<208>(to, from, count, stride);
    }
    for (uint64_t i = 0; i < count; i++) std::memcpy(to + i * part.bytes, from + i * stride, part.bytes);
}

} // namespace

uint64_t device_row_bytes(GgmlType type, uint32_t cols) {
    const BlockFormat& l = layout(type);
    ENSURE(cols % 32 == 0 && cols % l.elements == 0, "{} columns of {}", cols, type_name(type));
    uint64_t bytes = 0;
    for (const BlockPart part : l.parts) bytes += round_up(uint64_t(cols / l.elements) * part.bytes, 16);
    return bytes;
}

uint64_t device_matrix_bytes(GgmlType type, uint32_t rows, uint32_t cols, uint32_t interleave) {
    return device_row_bytes(type, cols) * ((uint64_t(rows) + interleave - 1) / interleave * interleave);
}

namespace {

// to[device_row_bytes] = a row in the device's layout. arranged: [blocks * l.bytes], where blocks are rearranged.
void repack_row(const BlockFormat& l, std::byte* to, const std::byte* from, uint64_t blocks, std::vector<std::byte>& arranged) {
    if (l.arrange) {
        for (uint64_t i = 0; i < blocks; i++) l.arrange(arranged.data() + i * l.bytes, from + i * l.bytes);
        from = arranged.data();
    }
    for (const BlockPart part : l.parts) {
        if (part.bytes == 0) break;
        const uint64_t bytes = blocks * part.bytes;
        gather(to, from, blocks, l.bytes, part);
        std::memset(to + bytes, 0, round_up(bytes, 16) - bytes);
        to += round_up(bytes, 16);
    }
}

} // namespace

void repack_rows(GgmlType type, std::span<std::byte> to, std::span<const std::byte> from, uint32_t first, uint32_t cols,
                 uint32_t interleave, uint32_t step) {
    const BlockFormat& l = layout(type);
    const uint64_t blocks = cols / l.elements, to_row = device_row_bytes(type, cols), from_row = blocks * l.bytes;
    const uint64_t rows = from.size() / from_row, end = rows == 0 ? first : first + (rows - 1) * step + 1;
    ENSURE(from.size() == from_row * rows && to.size() >= device_matrix_bytes(type, uint32_t(end), cols, interleave),
           "{} and {} bytes for {} rows from {}", to.size(), from.size(), rows, first);
    const bool as_is = l.parts[0].bytes == l.bytes && !l.arrange; // the device's row is the file's
    if (interleave == 1 && as_is && step == 1) {
        std::memcpy(to.data() + first * to_row, from.data(), from.size());
        return;
    }
    std::vector<std::byte> packed(interleave == 1 ? 0 : to_row), arranged(l.arrange ? from_row : 0);
    for (uint64_t r = 0; r < rows; r++) {
        const uint64_t row = first + r * step;
        std::byte* out = to.data() + row / interleave * interleave * to_row + row % interleave * 16;
        const std::byte* in = from.data() + r * from_row;
        if (interleave == 1 && as_is) {
            std::memcpy(out, in, to_row);
            continue;
        }
        if (interleave == 1) {
            repack_row(l, out, in, blocks, arranged);
            continue;
        }
        if (!as_is) {
            repack_row(l, packed.data(), in, blocks, arranged);
            in = packed.data();
        }
        for (uint64_t word = 0; word < to_row / 16; word++) std::memcpy(out + word * interleave * 16, in + word * 16, 16);
    }
}

} // namespace tq::gpu
