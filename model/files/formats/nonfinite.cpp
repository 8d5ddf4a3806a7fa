// find_nonfinite_block: every byte of a model passes through this when it is loaded. Whole chunks are tested without branches,
// so that the loops vectorise; only a chunk with a hit is searched again.
#include "base/ensure.h"
#include "model/files/formats/block_reader.h"
#include "model/files/formats/blocks.h"
#include <algorithm>
#include <bit>

namespace tq {
namespace {

// Returns the first of n values T, `stride` bytes apart, for which `is_bad` is true.
template <class T, class F> std::optional<uint64_t> find(const std::byte* x, uint64_t n, size_t stride, F is_bad) {
    constexpr uint64_t chunk = 4096;
    for (uint64_t begin = 0; begin < n; begin += chunk) {
        const uint64_t end = std::min(n, begin + chunk);
        T any = 0;
        for (uint64_t i = begin; i < end; ++i) any |= T(is_bad(load<T>(x + i * stride)));
        if (!any) continue;
        for (uint64_t i = begin; i < end; ++i) {
            if (is_bad(load<T>(x + i * stride))) return i;
        }
    }
    return std::nullopt;
}

constexpr auto bad_half = [](uint16_t bits) { return int((bits & 0x7c00) == 0x7c00); };

constexpr auto bad_pair = [](uint32_t v) { return bad_half(uint16_t(v)) | bad_half(uint16_t(v >> 16)); };

// Whether a number is bad whose nibbles are the upper ones of four words.
constexpr auto bad_nibbles = [](uint64_t v) { return (v & 0x7000c00000000000) == 0x7000c00000000000; };

// A scale of 2^125 or more makes the greatest levels infinite, if the block has them; the NaN has all bits set.
std::optional<uint64_t> find_mxfp4(const std::byte* x, uint64_t blocks) {
    for (uint64_t first = 0; first < blocks;) {
        const auto great = find<uint8_t>(x + first * 17, blocks - first, 17, [](uint8_t e) { return e >= 253; });
        if (!great) return std::nullopt;
        const uint64_t b = first + *great;
        float y[32];
        decode_row(GgmlType::MXFP4, y, {x + b * 17, 17});
        if (!std::ranges::all_of(y, [](float v) { return (std::bit_cast<uint32_t>(v) & 0x7f800000) != 0x7f800000; })) return b;
        first = b + 1;
    }
    return std::nullopt;
}

} // namespace

std::optional<uint64_t> find_nonfinite_block(GgmlType type, std::span<const std::byte> data) {
    const BlockFormat* format = block_format(type);
    ENSURE(format && data.size() % format->bytes == 0, "{} bytes of {}", data.size(), type_name(type));
    if (data.empty()) return std::nullopt;
    const std::byte* x = data.data();
    const uint64_t blocks = data.size() / format->bytes;
    switch (type) {
    case GgmlType::F32: return find<uint32_t>(x, blocks, 4, [](uint32_t v) { return (v & 0x7f800000) == 0x7f800000; });
    case GgmlType::BF16: return find<uint16_t>(x, blocks, 2, [](uint16_t v) { return (v & 0x7f80) == 0x7f80; });
    case GgmlType::F16: return find<uint16_t>(x, blocks, 2, bad_half);
    case GgmlType::MXFP4: return find_mxfp4(x, blocks);
    case GgmlType::NVFP4: return std::nullopt; // all scales are finite
    default: break;
    }
    const BlockScales& at = format->scales;
    if (at.in_nibbles) return find<uint64_t>(x + at.scale, blocks, format->bytes, bad_nibbles);
    ENSURE(at.scale >= 0 && (at.minimum < 0 || at.minimum == at.scale + 2), "where are the scales of {}?", format->name);
    if (at.minimum < 0) return find<uint16_t>(x + at.scale, blocks, format->bytes, bad_half);
    return find<uint32_t>(x + at.scale, blocks, format->bytes, bad_pair);
}

} // namespace tq
