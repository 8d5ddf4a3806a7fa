// Loops over blocks of 32 that vectorise on any processor: with integers where floats have no vector instruction.
#include "model/formats/quantise.h"
#include "base/ensure.h"
#include "base/half.h"
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
int32_t greatest_magnitude(const float* x) {
    int32_t greatest = 0;
    for (int i = 0; i < block; ++i) greatest = std::max(greatest, std::bit_cast<int32_t>(x[i]) & 0x7fffffff);
    return greatest;
}

// Returns 1 / d; 0 where that is not finite, since such a d is 0 in fp16.
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
    const int32_t magnitude = greatest_magnitude(x);
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

// Returns the element of the greatest magnitude, the first where both signs have it; not finite where any element is not.
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

} // namespace

void quantise_row(GgmlType type, std::span<std::byte> row, std::span<const float> x) {
    ENSURE(type == GgmlType::Q8_0 || type == GgmlType::Q4_0, "{}", type_name(type));
    ENSURE(row.size() == row_bytes(type, x.size()), "{} bytes for {} columns of {}", row.size(), x.size(), type_name(type));
    const size_t bytes = block_format(type)->bytes;
    const auto quantise = type == GgmlType::Q8_0 ? quantise_q8_0 : quantise_q4_0;
    std::byte* to = row.data();
    for (size_t i = 0; i < x.size(); i += block, to += bytes) quantise(to, x.data() + i);
}

} // namespace tq
