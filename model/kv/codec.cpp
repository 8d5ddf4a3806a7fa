// Normalise, rotate, quantise, pack. Only +, -, *, comparison and integer operations are used between input and bytes, in the
// order that turboquant.md gives, and none is fused (-ffp-contract=off): so every processor and every device stores the same
// bytes.
// The exponent of the largest element is taken off first, by integers. Then no sum or product of the rotation can overflow or
// become denormal, and a processor that flushes denormals to zero does the same as one that does not; the exponent comes back
// as the factor 2^e of the scales. Two vectors have no such exponent: one whose elements are all too small is stored as zeros,
// and one with a NaN or an infinity as zeros with scales that are NaN, so that the fault is seen by whoever reads it, and
// found (find_nonfinite).
#include "model/kv/codec.h"
#include "base/ensure.h"
#include "base/half.h"
#include "base/statistics.h"
#include "model/kv/blocks_codec.h"
#include "model/kv/turboquant.h"
#include <algorithm>
#include <bit>

namespace tq {
namespace {

constexpr int zero_vector = -128, nonfinite_vector = 128;

// y = x / 2^e, e the largest exponent in x; integers only. Elements below 2^-39 of it become 0. Returns e; zero_vector when the
// whole vector counts as zero, nonfinite_vector when an element is not finite: then y is 0.
int normalise_exponents(std::span<float> y, std::span<const float> x) {
    uint32_t largest = 0;
    for (const float v : x) largest = std::max(largest, (std::bit_cast<uint32_t>(v) >> 23) & 255);
    const int e = int(largest) - 127;
    const bool zero = e < -25 || e == 128;
    for (size_t i = 0; i < x.size(); i++) {
        const auto word = std::bit_cast<uint32_t>(x[i]);
        const int exponent = int((word >> 23) & 255) - 127 - e;
        y[i] = zero || exponent < -39 ? 0.0f : std::bit_cast<float>((word & 0x807fffffu) | uint32_t(exponent + 127) << 23);
    }
    return e == 128 ? nonfinite_vector : zero ? zero_vector : e;
}

uint32_t plain_bits(KvType type, float v) {
    const auto word = std::bit_cast<uint32_t>(v);
    if (type == KvType::f16) return float_to_half(v);
    if ((word & 0x7fffffff) > 0x7f800000) return word >> 16 | 0x40; // bf16: NaN stays NaN
    return (word + 0x7fff + (word >> 16 & 1)) >> 16;                // to nearest, ties to even
}

void encode_plain(KvType type, std::span<uint32_t> words, std::span<const float> x) {
    if (type == KvType::f32) {
        for (size_t i = 0; i < x.size(); i++) words[i] = std::bit_cast<uint32_t>(x[i]);
    } else {
        for (size_t i = 0; i < x.size(); i += 2) words[i / 2] = plain_bits(type, x[i]) | plain_bits(type, x[i + 1]) << 16;
    }
}

void decode_plain(KvType type, std::span<float> x, std::span<const uint32_t> words) {
    for (size_t i = 0; i < x.size(); i++) {
        if (type == KvType::f32) {
            x[i] = std::bit_cast<float>(words[i]);
            continue;
        }
        const uint32_t half = words[i / 2] >> (16 * (i % 2)) & 0xffff;
        x[i] = type == KvType::f16 ? half_to_float(uint16_t(half)) : std::bit_cast<float>(half << 16);
    }
}

void encode_blocks(KvType type, std::span<uint32_t> codes, std::span<uint16_t> scales, std::span<const float> y, int e) {
    for (size_t block = 0; block < scales.size(); block++) {
        const auto to = codes.subspan(block * ggml_block, ggml_block);
        const auto from = y.subspan(block * ggml_block, ggml_block);
        scales[block] = uint16_t(code_bits(type) == 8 ? encode_q8_0(to, from, e) : encode_q4_0(to, from, e));
    }
}

void decode_blocks(KvType type, std::span<float> y, std::span<const uint32_t> codes, std::span<const uint16_t> scales) {
    for (size_t i = 0; i < y.size(); i++) {
        const float scale = half_to_float(scales[i / ggml_block]);
        y[i] = code_bits(type) == 8 ? decode_q8_0(codes[i], scale) : decode_q4_0(codes[i], scale);
    }
}

} // namespace

uint32_t unpack_code(std::span<const uint32_t> words, uint32_t bits, size_t head_dim, size_t i) {
    const uint32_t low = KV_LOW_BITS(bits), high = bits - low;
    const uint32_t code = words[i * low / 32] >> (i * low % 32) & ((1u << low) - 1);
    if (high == 0) return code;
    return code | (words[(head_dim * low + i * high) / 32] >> (i * high % 32) & ((1u << high) - 1)) << low;
}

// words = the bits of codes from bit `shift` on, `width` of each.
static void pack_plane(std::span<uint32_t> words, uint32_t width, std::span<const uint32_t> codes, uint32_t shift) {
    const uint32_t mask = (1u << width) - 1;
    const uint32_t* code = codes.data();
    for (uint32_t& word : words) {
        word = 0;
        for (uint32_t bit = 0; bit < 32; bit += width) word |= (*code++ >> shift & mask) << bit;
    }
}

void pack_codes(std::span<uint32_t> words, uint32_t bits, std::span<const uint32_t> codes) {
    const uint32_t low = KV_LOW_BITS(bits), high = bits - low;
    const size_t first = codes.size() * low / 32;
    pack_plane(words.first(first), low, codes, 0);
    if (high != 0) pack_plane(words.subspan(first), high, codes, low);
}

// Two codes of unequal bits, as one number of 2 `bits` bits, share the places of two codes of `bits` bits (shaders/kv_types.h).
void unpack_codes(KvType type, std::span<uint32_t> codes, std::span<const uint32_t> words) {
    const uint32_t bits = code_bits(type), low = KV_LOW_BITS(bits), low_mask = (1u << low) - 1;
    for (size_t i = 0; i < codes.size(); i++) codes[i] = unpack_code(words, bits, codes.size(), i);
    for (size_t i = 0; is_unequal(type) && i < codes.size(); i += 2) {
        const uint32_t a = codes[i], b = codes[i + 1], high = bits - low, first = magnitude_bits(type, i) + 1;
        const uint32_t both = (a & low_mask) | (b & low_mask) << low | (a >> low | b >> low << high) << (2 * low);
        codes[i] = both & ((1u << first) - 1);
        codes[i + 1] = both >> first;
    }
}

void pack_codes(KvType type, std::span<uint32_t> words, std::span<const uint32_t> codes) {
    const uint32_t bits = code_bits(type), low = KV_LOW_BITS(bits), high = bits - low, low_mask = (1u << low) - 1;
    if (!is_unequal(type)) return pack_codes(words, bits, codes);
    std::array<uint32_t, max_head_dim> equal{};
    for (size_t i = 0; i < codes.size(); i += 2) {
        const uint32_t both = codes[i] | codes[i + 1] << (magnitude_bits(type, i) + 1), above = both >> (2 * low);
        equal[i] = (both & low_mask) | (above & ((1u << high) - 1)) << low;
        equal[i + 1] = (both >> low & low_mask) | above >> high << low;
    }
    pack_codes(words, bits, std::span(equal).first(codes.size()));
}

void encode(const KvCodec& codec, std::span<uint32_t> words, std::span<uint16_t> scales, std::span<const float> x) {
    const size_t d = x.size();
    const KvType type = codec.type;
    ENSURE(d == codec.head_dim(), "head_dim {} for {}", d, codec.head_dim());
    ENSURE(codec.rotation.quarters == is_unequal(type), "the rotation of {}", name(type));
    ENSURE(words.size() == codec.words() && scales.size() == codec.scales(), "{} words, {} scales for {}", words.size(),
           scales.size(), name(type));
    if (!is_coded(type)) return encode_plain(type, words, x);

    std::array<float, max_head_dim> y_storage;
    std::array<uint32_t, max_head_dim> codes_storage;
    const std::span y(y_storage.data(), d);
    const std::span codes(codes_storage.data(), d);
    std::ranges::fill(codes, 0u);
    const int e = normalise_exponents(y, x);
    const bool empty = e == zero_vector || e == nonfinite_vector;
    if (is_turboquant(type) && !empty) rotate(y, codec.rotation);
    if (!is_turboquant(type))
        encode_blocks(type, codes, scales, y, empty ? 0 : e);
    else if (empty)
        std::ranges::fill(scales, uint16_t(0));
    else
        encode_turboquant(type, codec.scale_rule, codes, scales, y, e);
    if (e == nonfinite_vector) std::ranges::fill(scales, nonfinite_scale);
    pack_codes(type, words, codes);
}

void decode_stored(const KvCodec& codec, std::span<float> y, std::span<const uint32_t> words, std::span<const uint16_t> scales) {
    const size_t d = y.size();
    const KvType type = codec.type;
    if (!is_coded(type)) return decode_plain(type, y, words);
    std::array<uint32_t, max_head_dim> codes{};
    unpack_codes(type, std::span(codes).first(d), words);
    if (is_turboquant(type))
        decode_turboquant(type, y, std::span(codes).first(d), scales);
    else
        decode_blocks(type, y, std::span(codes).first(d), scales);
}

void decode(const KvCodec& codec, std::span<float> x, std::span<const uint32_t> words, std::span<const uint16_t> scales) {
    decode_stored(codec, x, words, scales);
    if (is_turboquant(codec.type)) rotate_back(x, codec.rotation);
}

bool is_finite(const KvCodec& codec, std::span<const uint32_t> words, std::span<const uint16_t> scales) {
    if (is_coded(codec.type)) // no finite scale gives a NaN or an infinity
        return std::ranges::none_of(scales, [](uint16_t s) { return (s & 0x7c00) == 0x7c00; });
    std::array<float, max_head_dim> x{};
    decode_plain(codec.type, std::span(x).first(codec.head_dim()), words);
    return all_finite(std::span(x).first(codec.head_dim()));
}

} // namespace tq
