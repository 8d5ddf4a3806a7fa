// Common parts of the decoders of block formats: unaligned reads, and the levels that are tables.
#pragma once
#include "base/half.h"
#include "shaders/tables.h"
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace tq {

template <class T> T load(const std::byte* p) {
    T value;
    std::memcpy(&value, p, sizeof value);
    return value;
}

using Bytes16 = std::array<uint8_t, 16>; // a copy of levels: loops that read them in place do not vectorise

inline float load_fp16(const std::byte* p) { return half_to_float(load<uint16_t>(p)); }

// Returns levels: level i is the signed byte i of the words.
constexpr std::array<float, 16> level_table(const std::array<uint32_t, 4>& words) {
    std::array<float, 16> levels{};
    for (size_t i = 0; i < 16; ++i) levels[i] = float(int8_t(words[i / 4] >> (8 * (i % 4))));
    return levels;
}

inline constexpr auto iq4_levels = level_table({IQ4_LEVELS_0, IQ4_LEVELS_1, IQ4_LEVELS_2, IQ4_LEVELS_3});
inline constexpr auto mxfp4_levels = level_table({MXFP4_LEVELS_0, MXFP4_LEVELS_1, MXFP4_LEVELS_2, MXFP4_LEVELS_3});

// Returns 2^(e - 128), the scale of levels that are stored doubled; e = 255 is NaN.
inline float mxfp4_scale(uint8_t e) {
    const uint32_t exponent = e;
    if (exponent == 255) return std::bit_cast<float>(0x7fc00000u);
    return std::bit_cast<float>(exponent < 2 ? 0x00200000u << exponent : (exponent - 1) << 23);
}

// Returns half of a number with four bits of exponent and three of fraction, the scale of levels that are stored doubled. As in
// ggml, the upper bit has no meaning, and 127, NaN elsewhere, is 0.
inline float nvfp4_scale(uint8_t bits) {
    const uint32_t number = bits & 0x7f;
    if (bits == 0x7f) return 0;
    return number < 8 ? float(number) * 0x1p-10f : std::bit_cast<float>((number << 20) + (119u << 23));
}

} // namespace tq
