#include "model/gpu/device_layout.h"
#include "base/ensure.h"
#include <array>
#include <cstring>
#include <vector>

namespace tq::gpu {
namespace {

// A stretch of a block in the file.
struct Part {
    uint32_t from, bytes;
};

struct Layout {
    uint32_t elements, bytes;  // per block in the file
    std::array<Part, 3> parts; // each becomes an array over the row's blocks, padded to 16 bytes; bytes = 0: no more parts
};

Layout layout(GgmlType type) {
    switch (type) {
    case GgmlType::F32: return {1, 4, {{{0, 4}}}};
    case GgmlType::F16:
    case GgmlType::BF16: return {1, 2, {{{0, 2}}}};
    case GgmlType::Q8_0: return {32, 34, {{{2, 32}, {0, 2}}}}; // of these: levels; scale
    case GgmlType::Q4_0:
    case GgmlType::IQ4_NL: return {32, 18, {{{2, 16}, {0, 2}}}};
    case GgmlType::Q4_1: return {32, 20, {{{4, 16}, {0, 4}}}};         // scale and minimum
    case GgmlType::Q5_0: return {32, 22, {{{6, 16}, {2, 4}, {0, 2}}}}; // nibbles; fifth bits; scale
    case GgmlType::Q5_1: return {32, 24, {{{8, 16}, {0, 8}}}};         // nibbles; scale, minimum and fifth bits
    case GgmlType::MXFP4: return {32, 17, {{{1, 16}, {0, 1}}}};
    case GgmlType::Q2_K: return {256, 84, {{{0, 80}, {80, 4}}}};             // sub-block scales, levels; d and dmin
    case GgmlType::Q3_K: return {256, 110, {{{0, 96}, {96, 12}, {108, 2}}}}; // third bits, bit pairs; sub-block scales; d
    case GgmlType::Q4_K: return {256, 144, {{{0, 144}}}};
    case GgmlType::Q5_K: return {256, 176, {{{0, 176}}}};
    case GgmlType::Q6_K: return {256, 210, {{{0, 208}, {208, 2}}}}; // low nibbles, high pairs, sub-block scales; d
    case GgmlType::IQ4_XS: return {256, 136, {{{8, 128}, {0, 8}}}};
    }
    ENSURE(false, "no device layout for {}", type_name(type));
}

uint64_t padded(uint64_t bytes) { return (bytes + 15) / 16 * 16; }

template <size_t bytes> void gather(std::byte* to, const std::byte* from, uint64_t count, uint32_t stride) {
    for (uint64_t i = 0; i < count; i++) std::memcpy(to + i * bytes, from + i * stride, bytes);
}

// to[count][part.bytes] = that part of each block. The compiler knows the sizes: calls would take longer than copies.
void gather(std::byte* to, const std::byte* from, uint64_t count, uint32_t stride, Part part) {
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
    ENSURE(false, "no copy of {} bytes", part.bytes);
}

} // namespace

uint64_t device_row_bytes(GgmlType type, uint32_t cols) {
    const Layout l = layout(type);
    ENSURE(cols % 32 == 0 && cols % l.elements == 0, "{} columns of {}", cols, type_name(type));
    uint64_t bytes = 0;
    for (const Part part : l.parts) bytes += padded(uint64_t(cols / l.elements) * part.bytes);
    return bytes;
}

uint64_t device_matrix_bytes(GgmlType type, uint32_t rows, uint32_t cols, uint32_t interleave) {
    return device_row_bytes(type, cols) * ((uint64_t(rows) + interleave - 1) / interleave * interleave);
}

namespace {

// to[device_row_bytes] = a row
void repack_row(const Layout& l, std::byte* to, const std::byte* from, uint64_t blocks) {
    for (const Part part : l.parts) {
        if (part.bytes == 0) break;
        const uint64_t bytes = blocks * part.bytes;
        gather(to, from, blocks, l.bytes, part);
        std::memset(to + bytes, 0, padded(bytes) - bytes);
        to += padded(bytes);
    }
}

} // namespace

void repack_rows(GgmlType type, std::span<std::byte> to, std::span<const std::byte> from, uint32_t first, uint32_t cols,
                 uint32_t interleave, uint32_t step) {
    const Layout l = layout(type);
    const uint64_t blocks = cols / l.elements, to_row = device_row_bytes(type, cols), from_row = blocks * l.bytes;
    const uint64_t rows = from.size() / from_row, end = rows == 0 ? first : first + (rows - 1) * step + 1;
    ENSURE(from.size() == from_row * rows && to.size() >= device_matrix_bytes(type, uint32_t(end), cols, interleave),
           "{} and {} bytes for {} rows from {}", to.size(), from.size(), rows, first);
    const bool as_is = l.parts[0].bytes == l.bytes; // the device's row is the file's
    if (interleave == 1 && as_is && step == 1) {
        std::memcpy(to.data() + first * to_row, from.data(), from.size());
        return;
    }
    std::vector<std::byte> packed(interleave == 1 ? 0 : to_row);
    for (uint64_t r = 0; r < rows; r++) {
        const uint64_t row = first + r * step;
        std::byte* out = to.data() + row / interleave * interleave * to_row + row % interleave * 16;
        const std::byte* in = from.data() + r * from_row;
        if (interleave == 1 && as_is) {
            std::memcpy(out, in, to_row);
            continue;
        }
        if (interleave == 1) {
            repack_row(l, out, in, blocks);
            continue;
        }
        if (!as_is) {
            repack_row(l, packed.data(), in, blocks);
            in = packed.data();
        }
        for (uint64_t word = 0; word < to_row / 16; word++) std::memcpy(out + word * interleave * 16, in + word * 16, 16);
    }
}

} // namespace tq::gpu
