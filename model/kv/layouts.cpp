// The layouts of stored vectors in other programs' files (model/kv/layouts.h has their bytes). A code of a TurboQuant type is a
// sign bit above the index of a level's magnitude, as the kernels want it; other programs number the centroids by value, from the
// most negative one. rank_of() and code_of() are that permutation and its reverse. Our fp16 scale multiplies integer levels;
// their fp32 norm multiplies centroids of unit vectors. norm_per_scale() is the factor between the two.
// Codes survive export and import bit for bit. A scale does, too: its norm is computed in fp64 and rounded to fp32, and fp32 has
// 13 more bits than fp16, so that the way back rounds to the same scale. What is imported may come from anywhere, so each index,
// scale and norm is checked before it is stored.
#include "model/kv/layouts.h"
#include "base/ensure.h"
#include "base/error.h"
#include "base/half.h"
#include "base/printable.h"
#include "model/kv/blocks_codec.h"
#include <algorithm>
#include <bit>
#include <cmath>
#include <fmt/ranges.h>

namespace tq {
namespace {

using Bytes = std::span<uint8_t>;
using ConstBytes = std::span<const uint8_t>;

void put(Bytes bytes, uint32_t value) {
    for (size_t i = 0; i < bytes.size(); i++) bytes[i] = uint8_t(value >> (8 * i));
}

uint32_t get(ConstBytes bytes) {
    uint32_t value = 0;
    for (size_t i = 0; i < bytes.size(); i++) value |= uint32_t(bytes[i]) << (8 * i);
    return value;
}

// The upper half of the codes has the negative levels, the greatest magnitude last. So their ranks run backwards.
uint32_t rank_of(uint32_t code, uint32_t bits) {
    const uint32_t half = 1u << (bits - 1), index = code & (half - 1);
    return (code & half) != 0 ? half - 1 - index : half + index;
}

uint32_t code_of(uint32_t rank, uint32_t bits) {
    const uint32_t half = 1u << (bits - 1);
    return rank >= half ? rank - half : half | (half - 1 - rank);
}

// Returns the factor from a scale to a norm.
double norm_per_scale(const KvCodec& codec) {
    return level_units(code_bits(codec.type)) * std::sqrt(double(codec.head_dim()) / double(codec.rotation.gain()));
}

float norm_of(const KvCodec& codec, uint16_t scale) {
    if (scale == nonfinite_scale) return std::bit_cast<float>(0x7fc00000u);
    return float(double(half_to_float(scale)) * norm_per_scale(codec));
}

// A norm that rounds to an infinite fp16 scale is refused rather than clamped: each value of the vector would be smaller than it
// was, without a word.
uint16_t scale_of(const KvCodec& codec, float norm, bool allow_nonfinite) {
    if (std::isnan(norm) && allow_nonfinite) return nonfinite_scale;
    if (!std::isfinite(norm) || norm < 0) fail("its norm is {}: it must be finite and not negative", norm);
    const uint16_t scale = float_to_half(float(double(norm) / norm_per_scale(codec))) & 0x7fff; // -0 is 0
    if (scale >= 0x7c00)
        fail("its norm is {}, but the scales of {} reach only to {:.6g}", norm, name(codec.type), 65504 * norm_per_scale(codec));
    return scale;
}

void check_scale(uint16_t scale, bool allow_nonfinite) {
    const bool finite = (scale & 0x7c00) != 0x7c00;
    if (!finite && !(allow_nonfinite && scale == nonfinite_scale)) fail("its scale {:04x} is not finite", scale);
}

std::vector<uint32_t> unpacked(const KvCodec& codec, std::span<const uint32_t> words) {
    std::vector<uint32_t> codes(codec.head_dim());
    for (size_t i = 0; i < codes.size(); i++) codes[i] = unpack_code(words, code_bits(codec.type), codes.size(), i);
    return codes;
}

void export_planes(Bytes bytes, std::span<const uint32_t> words, std::span<const uint16_t> scales) {
    for (size_t i = 0; i < words.size(); i++) put(bytes.subspan(4 * i, 4), words[i]);
    for (size_t i = 0; i < scales.size(); i++) put(bytes.subspan(4 * words.size() + 2 * i, 2), scales[i]);
}

void import_planes(const KvCodec& codec, std::span<uint32_t> words, std::span<uint16_t> scales, ConstBytes bytes,
                   bool allow_nonfinite) {
    for (size_t i = 0; i < words.size(); i++) words[i] = get(bytes.subspan(4 * i, 4));
    for (size_t i = 0; i < scales.size(); i++) {
        scales[i] = uint16_t(get(bytes.subspan(4 * words.size() + 2 * i, 2)));
        check_scale(scales[i], allow_nonfinite);
        if (is_turboquant(codec.type) && (scales[i] & 0x8000) != 0) fail("its scale {:04x} is negative", scales[i]);
    }
    if (!allow_nonfinite && !is_finite(codec, words, scales)) fail("it holds a value that is not finite");
}

// An index of 3, 5 or 6 bits may lie across two bytes: the lower bits go into the first one. If it does not, the shifted index
// fits a byte, and the byte after it is not touched, for it may be the end of the vector.
void export_block68(const KvCodec& codec, Bytes bytes, std::span<const uint32_t> codes, uint16_t scale) {
    const uint32_t bits = code_bits(codec.type);
    put(bytes.first(4), std::bit_cast<uint32_t>(norm_of(codec, scale)));
    const Bytes indices = bytes.subspan(4);
    std::ranges::fill(indices, uint8_t(0));
    for (size_t i = 0; i < codes.size(); i++) {
        const uint32_t shifted = rank_of(codes[i], bits) << (i * bits % 8);
        indices[i * bits / 8] |= uint8_t(shifted);
        if (shifted > 255) indices[i * bits / 8 + 1] |= uint8_t(shifted >> 8);
    }
}

// Reads two bytes in any case. At the last byte it reads that byte twice, since an index that begins there also ends there.
uint32_t packed_rank(ConstBytes indices, size_t i, uint32_t bits) {
    const size_t at = i * bits / 8, second = std::min(at + 1, indices.size() - 1);
    return get(ConstBytes(std::array{indices[at], indices[second]})) >> (i * bits % 8) & ((1u << bits) - 1);
}

// q8_0 has one value in a byte. q4_0 has channel i of a block in the low half of byte i, and channel i + 16 in the high half.
void export_ggml(const KvCodec& codec, Bytes bytes, std::span<const uint32_t> codes, std::span<const uint16_t> scales) {
    const size_t length = bytes.size() / scales.size();
    for (size_t b = 0; b < scales.size(); b++) {
        const Bytes block = bytes.subspan(b * length, length), values = block.subspan(2);
        const auto from = codes.subspan(b * ggml_block, ggml_block);
        put(block.first(2), scales[b]);
        for (size_t i = 0; i < values.size(); i++)
            values[i] = uint8_t(code_bits(codec.type) == 8 ? from[i] : from[i] | from[i + values.size()] << 4);
    }
}

void import_ggml(const KvCodec& codec, std::span<uint32_t> codes, std::span<uint16_t> scales, ConstBytes bytes,
                 bool allow_nonfinite) {
    const size_t length = bytes.size() / scales.size();
    for (size_t b = 0; b < scales.size(); b++) {
        const ConstBytes block = bytes.subspan(b * length, length), values = block.subspan(2);
        const auto to = codes.subspan(b * ggml_block, ggml_block);
        scales[b] = uint16_t(get(block.first(2)));
        check_scale(scales[b], allow_nonfinite);
        for (size_t i = 0; i < ggml_block; i++)
            to[i] = code_bits(codec.type) == 8 ? values[i] : values[i % values.size()] >> (i < values.size() ? 0 : 4) & 15;
    }
}

} // namespace

KvLayout parse_kv_layout(std::string_view text) {
    const auto at = std::ranges::find(kv_layout_names, text);
    if (at == kv_layout_names.end())
        fail("unknown layout '{}': use one of {}", printable(text), fmt::join(kv_layout_names, ", "));
    return KvLayout(at - kv_layout_names.begin());
}

double level_units(uint32_t bits) {
    static constexpr double units[] = {66.20982853, 52.94280909, 38.14298873, 29.72627935, 28.82202253};
    return bits >= 2 && bits <= 6 ? units[bits - 2] : 64;
}

bool has_layout(KvType type, KvLayout layout) {
    switch (layout) {
    case KvLayout::planes: return true;
    case KvLayout::ggml: return family(type) == KV_BLOCKS;
    default: return is_turboquant(type) && !is_trellis(type) && !is_unequal(type);
    }
}

void require_layout(KvType type, KvLayout layout) {
    if (has_layout(type, layout)) return;
    std::vector<const char*> types;
    for (const KvTypeName& known : kv_types)
        if (has_layout(known.type, layout)) types.push_back(known.name);
    fail("{} has no layout {}, which is for {}", name(type), name(layout), fmt::join(types, ", "));
}

uint32_t layout_bytes(KvLayout layout, KvType type, uint32_t head_dim) {
    switch (layout) {
    case KvLayout::block68: return 4 + head_dim * code_bits(type) / 8;
    case KvLayout::bytes132: return head_dim + 4;
    default: return kv_vector_bytes(type, head_dim); // ggml's blocks hold the same numbers in another order
    }
}

void export_vector(const KvCodec& codec, KvLayout layout, Bytes bytes, std::span<const uint32_t> words,
                   std::span<const uint16_t> scales) {
    ENSURE(has_layout(codec.type, layout) && bytes.size() == layout_bytes(layout, codec.type, codec.head_dim()), "{} bytes of {}",
           bytes.size(), name(codec.type));
    if (layout == KvLayout::planes) return export_planes(bytes, words, scales);
    const std::vector<uint32_t> codes = unpacked(codec, words);
    if (layout == KvLayout::ggml) return export_ggml(codec, bytes, codes, scales);
    if (layout == KvLayout::block68) return export_block68(codec, bytes, codes, scales[0]);
    for (size_t i = 0; i < codes.size(); i++) bytes[i] = uint8_t(rank_of(codes[i], code_bits(codec.type)));
    put(bytes.last(4), std::bit_cast<uint32_t>(norm_of(codec, scales[0])));
}

void import_vector(const KvCodec& codec, KvLayout layout, std::span<uint32_t> words, std::span<uint16_t> scales, ConstBytes bytes,
                   bool allow_nonfinite) {
    ENSURE(has_layout(codec.type, layout) && bytes.size() == layout_bytes(layout, codec.type, codec.head_dim()), "{} bytes of {}",
           bytes.size(), name(codec.type));
    if (layout == KvLayout::planes) return import_planes(codec, words, scales, bytes, allow_nonfinite);
    std::vector<uint32_t> codes(codec.head_dim());
    const uint32_t bits = code_bits(codec.type), last = (1u << bits) - 1;
    if (layout == KvLayout::ggml) {
        import_ggml(codec, codes, scales, bytes, allow_nonfinite);
    } else {
        const bool packed = layout == KvLayout::block68;
        scales[0] = scale_of(codec, std::bit_cast<float>(get(packed ? bytes.first(4) : bytes.last(4))), allow_nonfinite);
        for (size_t i = 0; i < codes.size(); i++) {
            const uint32_t rank = packed ? packed_rank(bytes.subspan(4), i, bits) : bytes[i];
            if (rank > last) fail("index {} of channel {} is not one of {}, which are 0 to {}", rank, i, name(codec.type), last);
            codes[i] = code_of(rank, bits);
        }
    }
    pack_codes(words, bits, codes);
}

} // namespace tq
