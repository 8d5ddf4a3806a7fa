// Loops over blocks of 32 that vectorise on any processor: with integers if floats have no vector instruction.
#include "model/files/formats/quantise.h"
#include "base/ensure.h"
#include "base/half.h"
#include "model/files/formats/quantise_k.h"
#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

namespace tq {
namespace {

constexpr int block = 32;
constexpr uint16_t half_nan = 0x7e00;

// Returns the greatest |x| as bits, which are ordered like the values; infinity and every NaN are above all others.
int32_t max_magnitude(const float* x) {
    int32_t max = 0;
    for (int i = 0; i < block; ++i) max = std::max(max, std::bit_cast<int32_t>(x[i]) & 0x7fffffff);
    return max;
}

// Returns 1 / d; 0 if that is not finite, since such a d is 0 in fp16.
float inverse(float d) { return std::fabs(d) >= std::numeric_limits<float>::min() ? 1 / d : 0; }

void store_half(std::byte* to, float d) {
    const uint16_t bits = float_to_half(d);
    std::memcpy(to, &bits, sizeof bits);
}

void store_nonfinite(std::byte* to, size_t bytes) {
    std::memset(to, 0, bytes);
    std::memcpy(to, &half_nan, sizeof half_nan);
}

// d = max |x| / 127, codes round(x / d), halves away from zero. half d; int8 q[32]
void quantise_q8_0(std::byte* to, const float* x) {
    const int32_t magnitude = max_magnitude(x);
    if (magnitude >= 0x7f800000) return store_nonfinite(to, 34);
    const float d = std::bit_cast<float>(magnitude) / 127, id = inverse(d);
    store_half(to, d);
    std::array<int8_t, block> codes;
    for (int i = 0; i < block; ++i) {
        const float y = x[i] * id;
        const int whole = int(y); // towards zero
        const float rest = y - float(whole);
        codes[i] = int8_t(whole + int(rest >= 0.5f) - int(rest <= -0.5f));
    }
    std::memcpy(to + 2, codes.data(), block);
}

// Returns the element of the greatest magnitude, the first if both signs have it; not finite if any element is not. Compared as
// integers: for non-negative floats the order of bits is that of values. `bits ^ sign` makes the negative ones positive, and the
// positive ones negative integers, which are below 0. So `above` is the greatest positive element, `below` the greatest negated
// negative one, in one pass without branches.
float signed_extreme(const float* x) {
    constexpr auto sign = std::numeric_limits<int32_t>::min();
    int32_t above = 0, below = 0; // the greatest magnitudes of either sign, as bits
    for (int i = 0; i < block; ++i) {
        const auto bits = std::bit_cast<int32_t>(x[i]);
        above = std::max(above, bits);
        below = std::max(below, bits ^ sign);
    }
    if (above == below) {
        const auto is_extreme = [&](float v) { return (std::bit_cast<int32_t>(v) & ~sign) == above; };
        return *std::find_if(x, x + block, is_extreme);
    }
    return std::bit_cast<float>(above > below ? above : below ^ sign);
}

// d = the element of the greatest magnitude / -8, codes x / d + 8 to the nearest, at most 15.
// half d; 16 bytes: the low nibbles are elements 0..15, the high ones 16..31
void quantise_q4_0(std::byte* to, const float* x) {
    const float extreme = signed_extreme(x);
    if (!std::isfinite(extreme)) return store_nonfinite(to, 18);
    const float d = extreme / -8, id = inverse(d);
    store_half(to, d);
    std::array<int32_t, block> codes;
    for (int i = 0; i < block; ++i) codes[i] = std::min(15, int(x[i] * id + 8.5f));
    std::array<uint8_t, block / 2> packed;
    for (int i = 0; i < block / 2; ++i) packed[i] = uint8_t(codes[i] | codes[i + block / 2] << 4);
    std::memcpy(to + 2, packed.data(), packed.size());
}

// The least and the greatest element; both NaN if one is NaN or infinite.
struct Range {
    float min, max;
};
Range range_of(const float* x) {
    if (max_magnitude(x) >= 0x7f800000) return {NAN, NAN};
    return {*std::min_element(x, x + block), *std::max_element(x, x + block)};
}

// The codes in nibbles as in Q4_0, and their fifth bits, bit i of element i.
struct Packed {
    std::array<uint8_t, block / 2> nibbles{};
    uint32_t fifth = 0;
};
Packed pack(const std::array<int32_t, block>& codes) {
    Packed out;
    for (int i = 0; i < block / 2; ++i) out.nibbles[i] = uint8_t((codes[i] & 15) | (codes[i + block / 2] & 15) << 4);
    for (int i = 0; i < block; ++i) out.fifth |= uint32_t(codes[i] >> 4) << i;
    return out;
}

// d = (greatest - least) / 15, m = least, codes (x - m) / d to the nearest. half d, m; nibbles
void quantise_q4_1(std::byte* to, const float* x) {
    const auto [min, max] = range_of(x);
    if (!std::isfinite(min)) return store_nonfinite(to, 20);
    const float d = (max - min) / 15, id = inverse(d);
    store_half(to, d);
    store_half(to + 2, min);
    std::array<int32_t, block> codes;
    for (int i = 0; i < block; ++i) codes[i] = std::min(15, int((x[i] - min) * id + 0.5f));
    const Packed packed = pack(codes);
    std::memcpy(to + 4, packed.nibbles.data(), packed.nibbles.size());
}

// Like Q4_0, with d = extreme / -16. half d; 32 fifth bits; nibbles
void quantise_q5_0(std::byte* to, const float* x) {
    const float extreme = signed_extreme(x);
    if (!std::isfinite(extreme)) return store_nonfinite(to, 22);
    const float d = extreme / -16, id = inverse(d);
    store_half(to, d);
    std::array<int32_t, block> codes;
    for (int i = 0; i < block; ++i) codes[i] = std::min(31, int(x[i] * id + 16.5f));
    const Packed packed = pack(codes);
    std::memcpy(to + 2, &packed.fifth, 4);
    std::memcpy(to + 6, packed.nibbles.data(), packed.nibbles.size());
}

// Like Q4_1, with d = (greatest - least) / 31. half d, m; 32 fifth bits; nibbles
void quantise_q5_1(std::byte* to, const float* x) {
    const auto [min, max] = range_of(x);
    if (!std::isfinite(min)) return store_nonfinite(to, 24);
    const float d = (max - min) / 31, id = inverse(d);
    store_half(to, d);
    store_half(to + 2, min);
    std::array<int32_t, block> codes;
    for (int i = 0; i < block; ++i) codes[i] = int((x[i] - min) * id + 0.5f);
    const Packed packed = pack(codes);
    std::memcpy(to + 4, &packed.fifth, 4);
    std::memcpy(to + 8, packed.nibbles.data(), packed.nibbles.size());
}

void store_f32(std::byte* to, const float* x) { std::memcpy(to, x, 4); }
void store_f16(std::byte* to, const float* x) { store_half(to, *x); }

// A NaN keeps its upper bits and stays a NaN.
void store_bf16(std::byte* to, const float* x) {
    const auto bits = std::bit_cast<uint32_t>(*x);
    const bool is_nan = (bits & 0x7fffffff) > 0x7f800000;
    const auto rounded = uint16_t(is_nan ? bits >> 16 | 64 : (bits + 0x7fff + (bits >> 16 & 1)) >> 16);
    std::memcpy(to, &rounded, 2);
}

using Encode = void (*)(std::byte* to, const float* x); // of one block
Encode encoder(GgmlType type) {
    switch (type) {
    case GgmlType::F32: return store_f32;
    case GgmlType::F16: return store_f16;
    case GgmlType::BF16: return store_bf16;
    case GgmlType::Q8_0: return quantise_q8_0;
    case GgmlType::Q4_0: return quantise_q4_0;
    case GgmlType::Q4_1: return quantise_q4_1;
    case GgmlType::Q5_0: return quantise_q5_0;
    case GgmlType::Q5_1: return quantise_q5_1;
    default: return nullptr;
    }
}

using EncodeK = void (*)(std::byte* to, const float* x, const float* importance); // of one block of 256
EncodeK k_encoder(GgmlType type) {
    switch (type) {
    case GgmlType::Q2_K: return quantise_q2_k;
    case GgmlType::Q3_K: return quantise_q3_k;
    case GgmlType::Q4_K: return quantise_q4_k;
    case GgmlType::Q5_K: return quantise_q5_k;
    case GgmlType::Q6_K: return quantise_q6_k;
    default: return nullptr;
    }
}

// Returns false for values that no block of a K format with a finite scale holds, and for NaN.
bool fits_k(std::span<const float> x) {
    return std::ranges::all_of(x, [](float v) { return std::fabs(v) < 0x1p26f; });
}

} // namespace

bool has_encoder(GgmlType type) { return encoder(type) != nullptr || k_encoder(type) != nullptr; }

bool uses_importance(GgmlType type) { return k_encoder(type) != nullptr; }

void quantise_row(GgmlType type, std::span<std::byte> row, std::span<const float> x, std::span<const float> importance) {
    ENSURE(has_encoder(type), "{}", type_name(type));
    ENSURE(row.size() == row_bytes(type, x.size()), "{} bytes for {} columns of {}", row.size(), x.size(), type_name(type));
    ENSURE(importance.empty() || importance.size() == x.size(), "{} importances of {} columns", importance.size(), x.size());
    const BlockFormat& format = *block_format(type);
    const auto encode = encoder(type);
    const auto encode_k = k_encoder(type);
    std::byte* to = row.data();
    for (size_t i = 0; i < x.size(); i += format.elements, to += format.bytes) {
        if (encode) {
            encode(to, x.data() + i);
            continue;
        }
        std::memset(to, 0, format.bytes);
        if (fits_k(x.subspan(i, format.elements)))
            encode_k(to, x.data() + i, importance.empty() ? nullptr : importance.data() + i);
        else
            set_block_scales(format, to, half_nan);
    }
}

} // namespace tq
