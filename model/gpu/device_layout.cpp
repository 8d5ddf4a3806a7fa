// Repacks rows of weights from a file's blocks to the device's layout (device_layout.h), row by row, while they are uploaded. All
// weights of a model pass through here, so sizes are compile-time constants where possible, and a row whose layout is the file's
// is copied as it is. Rows go straight into staging memory, which may be write-combined: it is written and never read.
// Scales are raised by 2^10 on the way. If one of a matrix would leave fp16, repack_rows() says so, and the uploader writes the
// whole matrix again with plain scales (WeightUploader::fill()).
#include "model/gpu/device_layout.h"
#include "base/ensure.h"
#include "base/half.h"
#include "base/sizes.h"
#include <cstring>
#include <vector>

namespace tq::gpu {
namespace {

const BlockFormat& format_of(GgmlType type) {
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
    case 48: return gather<48>(to, from, count, stride);
    case 64: return gather<64>(to, from, count, stride);
    case 80: return gather<80>(to, from, count, stride);
    case 96: return gather<96>(to, from, count, stride);
    case 128: return gather<128>(to, from, count, stride);
    case 208: return gather<208>(to, from, count, stride);
    }
    for (uint64_t i = 0; i < count; i++) std::memcpy(to + i * part.bytes, from + i * stride, part.bytes);
}

} // namespace

uint64_t device_row_bytes(GgmlType type, uint32_t cols) {
    const BlockFormat& l = format_of(type);
    ENSURE(cols % 32 == 0 && cols % l.elements == 0, "{} columns of {}", cols, type_name(type));
    uint64_t bytes = 0;
    for (const BlockPart part : l.parts) bytes += round_up(uint64_t(cols / l.elements) * part.bytes, 16);
    return bytes + (l.has_factor ? 16 : 0);
}

uint64_t device_rows_bytes(GgmlType type, uint32_t rows, uint32_t cols, uint32_t interleave) {
    return device_row_bytes(type, cols) * ((uint64_t(rows) + interleave - 1) / interleave * interleave);
}

std::span<const std::byte> device_grid(GgmlType type) { return std::as_bytes(format_of(type).grid); }

uint64_t device_matrix_bytes(GgmlType type, uint32_t rows, uint32_t cols, uint32_t interleave) {
    return device_grid(type).size() + device_rows_bytes(type, rows, cols, interleave);
}

namespace {

// Returns false if 2^10 times the fp16 number is not an fp16 number. A normal number is raised by adding to its exponent. A
// denormal one becomes normal, and is computed in fp32, which is exact. Infinity and NaN stay at or above `infinite`, and so
// count as "cannot".
bool raise(std::byte* at) {
    uint16_t bits;
    std::memcpy(&bits, at, 2);
    constexpr uint16_t min_normal = 1 << 10, infinite = 31 << 10;
    const auto magnitude = uint16_t(bits & 0x7fff), sign = uint16_t(bits & 0x8000);
    const bool denormal = magnitude < min_normal; // and 0: in units of 2^-24
    const auto raised =
        denormal ? float_to_half(float(magnitude) * 0x1p-24f * (1 << raised_by)) : uint16_t(magnitude + raised_by * min_normal);
    bits = uint16_t(raised | sign);
    std::memcpy(at, &bits, 2);
    return raised < infinite;
}

// Repacks rows one after another.
class Repacker {
  public:
    Repacker(const BlockFormat& format, uint64_t blocks, bool raised)
        : format_(format), blocks_(blocks), raised_(raised && format.scales.scale >= 0),
          changed_(format.arrange || raised_ ? blocks * format.bytes : 0) {}

    // The device's row is the file's.
    bool as_is() const { return format_.parts[0].bytes == format_.bytes && changed_.empty(); }

    // to[device_row_bytes] = a row in the device's layout. Returns false if a scale cannot be raised.
    bool operator()(std::byte* to, const std::byte* from, float factor) {
        if (as_is()) {
            std::memcpy(to, from, blocks_ * format_.bytes);
            return true;
        }
        const bool done = change(from);
        if (!changed_.empty()) from = changed_.data();
        for (const BlockPart part : format_.parts) {
            if (part.bytes == 0) break;
            const uint64_t bytes = blocks_ * part.bytes;
            gather(to, from, blocks_, format_.bytes, part);
            std::memset(to + bytes, 0, round_up(bytes, 16) - bytes);
            to += round_up(bytes, 16);
        }
        const float last[4] = {factor, 0, 0, 0};
        if (format_.has_factor) std::memcpy(to, last, sizeof last);
        return done;
    }

  private:
    // changed_ = the row with its blocks' bits rearranged and their scales raised. Rearranging moves no fp16 number.
    bool change(const std::byte* from) {
        const BlockScales& at = format_.scales;
        if (!format_.arrange && raised_) std::memcpy(changed_.data(), from, changed_.size());
        bool done = true;
        for (uint64_t i = 0; i < blocks_ && !changed_.empty(); i++) {
            std::byte* block = changed_.data() + i * format_.bytes;
            if (format_.arrange) format_.arrange(block, from + i * format_.bytes);
            if (!raised_) continue;
            done = raise(block + at.scale) && done;
            if (at.minimum >= 0) done = raise(block + at.minimum) && done;
        }
        return done;
    }

    const BlockFormat& format_;
    const uint64_t blocks_;
    const bool raised_;
    std::vector<std::byte> changed_;
};

} // namespace

bool repack_rows(const RowLayout& layout, std::span<std::byte> to, std::span<const std::byte> from, uint32_t first, uint32_t step,
                 std::span<const float> factors) {
    const BlockFormat& l = format_of(layout.type);
    const uint32_t interleave = layout.interleave;
    const uint64_t blocks = layout.cols / l.elements, to_row = device_row_bytes(layout.type, layout.cols),
                   from_row = blocks * l.bytes;
    const uint64_t rows = from.size() / from_row, end = rows == 0 ? first : first + (rows - 1) * step + 1;
    ENSURE(from.size() == from_row * rows && to.size() >= device_rows_bytes(layout.type, uint32_t(end), layout.cols, interleave),
           "{} and {} bytes for {} rows from {}", to.size(), from.size(), rows, first);
    Repacker repack(l, blocks, layout.raised);
    if (interleave == 1 && repack.as_is() && step == 1) {
        std::memcpy(to.data() + first * to_row, from.data(), from.size());
        return true;
    }
    std::vector<std::byte> packed(interleave == 1 ? 0 : to_row);
    bool done = true;
    for (uint64_t r = 0; r < rows; r++) {
        const uint64_t row = first + r * step;
        std::byte* out = to.data() + row / interleave * interleave * to_row + row % interleave * 16;
        const std::byte* in = from.data() + r * from_row;
        const float factor = factors.empty() ? 1 : factors[r];
        if (interleave == 1) {
            done = repack(out, in, factor) && done;
            continue;
        }
        if (!repack.as_is()) {
            done = repack(packed.data(), in, factor) && done;
            in = packed.data();
        }
        for (uint64_t word = 0; word < to_row / 16; word++) std::memcpy(out + word * interleave * 16, in + word * 16, 16);
    }
    return done;
}

} // namespace tq::gpu
