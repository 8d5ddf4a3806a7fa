// find_nonfinite_block: every byte of a model passes here when it is loaded. Whole chunks are tested without branches, so that
// the loops vectorise; only a chunk that has something is looked at again.
#include "base/ensure.h"
#include "model/formats/block_reader.h"
#include "model/formats/blocks.h"
#include <algorithm>
#include <bit>

namespace tq {
namespace {

// The first of n values T, `stride` bytes apart, for which `is_bad` is true.
template <size_t stride, class T, class F> std::optional<uint64_t> find(const std::byte* x, uint64_t n, F is_bad) {
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

// Blocks of `bytes` bytes with one half at `d`.
template <size_t bytes> std::optional<uint64_t> find_half(const std::byte* x, uint64_t blocks, size_t d) {
    return find<bytes, uint16_t>(x + d, blocks, bad_half);
}

// Likewise two halves, the first at `d`.
template <size_t bytes> std::optional<uint64_t> find_pair(const std::byte* x, uint64_t blocks, size_t d) {
    return find<bytes, uint32_t>(x + d, blocks, [](uint32_t v) { return bad_half(uint16_t(v)) | bad_half(uint16_t(v >> 16)); });
}

// A scale of 2^125 or more makes the greatest levels infinite, if the block has them; the NaN has all bits set.
std::optional<uint64_t> find_mxfp4(const std::byte* x, uint64_t blocks) {
    for (uint64_t first = 0; first < blocks;) {
        const auto great = find<17, uint8_t>(x + first * 17, blocks - first, [](uint8_t e) { return e >= 253; });
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
    case GgmlType::F32: return find<4, uint32_t>(x, blocks, [](uint32_t v) { return (v & 0x7f800000) == 0x7f800000; });
    case GgmlType::BF16: return find<2, uint16_t>(x, blocks, [](uint16_t v) { return (v & 0x7f80) == 0x7f80; });
    case GgmlType::F16: return find_half<2>(x, blocks, 0);
    case GgmlType::Q4_0:
    case GgmlType::IQ4_NL: return find_half<18>(x, blocks, 0);
    case GgmlType::Q5_0: return find_half<22>(x, blocks, 0);
    case GgmlType::Q8_0: return find_half<34>(x, blocks, 0);
    case GgmlType::Q3_K: return find_half<110>(x, blocks, 108);
    case GgmlType::Q6_K: return find_half<210>(x, blocks, 208);
    case GgmlType::IQ4_XS: return find_half<136>(x, blocks, 0);
    case GgmlType::Q4_1: return find_pair<20>(x, blocks, 0);
    case GgmlType::Q5_1: return find_pair<24>(x, blocks, 0);
    case GgmlType::Q2_K: return find_pair<84>(x, blocks, 80);
    case GgmlType::Q4_K: return find_pair<144>(x, blocks, 0);
    case GgmlType::Q5_K: return find_pair<176>(x, blocks, 0);
    case GgmlType::MXFP4: return find_mxfp4(x, blocks);
    }
    return std::nullopt;
}

} // namespace tq
