// The grids of IQ2, IQ3 and IQ1 weights: their magnitudes or levels are those of an entry, eight weights each (four in IQ3).
#pragma once
#include <array>
#include <cstdint>

namespace tq {

// The entries packed, two in a word, the first in the low half: the code of weight i at bits 2 i, in IQ3 at bits 4 i. Devices
// have them so at the beginning of each matrix (model/gpu/device_layout.h).
extern const std::array<uint32_t, 128> iq2_xxs_codes, iq3_xxs_codes;
extern const std::array<uint32_t, 256> iq2_xs_codes, iq3_s_codes;
extern const std::array<uint32_t, 512> iq2_s_codes;
extern const std::array<uint32_t, 1024> iq1_codes; // of IQ1_S and IQ1_M

constexpr uint32_t iq2_magnitude(uint32_t code) { return 8 + 17 * code + code / 2; } // 8, 25, 43
constexpr uint32_t iq1_level(uint32_t code) { return 7 + 8 * code; }                 // 8 (code - 1), to which 15 is added

// The entries as bytes, that of the first weight lowest. Magnitudes of codes: IQ2 iq2_magnitude(); IQ3_XXS 4, 12, 20, 28, 36, 44,
// 52, 62; IQ3_S 1, 3, ... 15. IQ1 has levels: iq1_level().
extern const std::array<uint64_t, 256> iq2_xxs_grid;
extern const std::array<uint64_t, 512> iq2_xs_grid;
extern const std::array<uint64_t, 1024> iq2_s_grid;
extern const std::array<uint32_t, 256> iq3_xxs_grid;
extern const std::array<uint32_t, 512> iq3_s_grid;
extern const std::array<uint64_t, 2048> iq1_grid;

// The entries' codes for vectors of four columns: byte i has that of weight i in bits 0 and 1, and that of weight 4 + i above.
extern const std::array<uint32_t, 256> iq2_xxs_columns;
extern const std::array<uint32_t, 512> iq2_xs_columns;
extern const std::array<uint32_t, 1024> iq2_s_columns;
extern const std::array<uint32_t, 2048> iq1_columns;

// Eight signs, bit i of weight i, from seven: the number of negative weights is even.
extern const std::array<uint8_t, 128> even_signs;
// A byte for each of eight signs: 0xff if it is set.
extern const std::array<uint64_t, 256> sign_masks;

} // namespace tq
