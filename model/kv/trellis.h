// Trellis-coded levels, of tq2t and tq3t: a code's level depends on the codes before it in its word, so that 16 levels take two
// or three bits, and an encoder looks for the word of levels that is nearest. turboquant.md, section "Trellises".
#pragma once
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>

namespace tq {

// The levels of a type of `bits` bits, by index; that of 15 - index is the negative.
const std::array<int8_t, 16>& trellis_levels(uint32_t bits);

// Which of them channel i of codes[head_dim] has.
uint32_t trellis_index(uint32_t bits, std::span<const uint32_t> codes, size_t i);

// codes[d] whose levels are nearest to y[d], |y|^2 = norm2 > 0.
void choose_trellis_codes(uint32_t bits, std::span<uint32_t> codes, std::span<const float> y, float norm2);

// The words of a stored vector, so that indices can be read side by side. Of two bits: the indices of even channels are the
// nibbles of `turned`, those of odd channels the nibbles of the words themselves. Of three: `turned` and `last` are planes of the
// indices' bits 2 and 3, of as many words as the plane of third bits; their low bits are the codes'.
struct TrellisPlanes {
    uint32_t turned[16], last[8];

    TrellisPlanes(uint32_t bits, std::span<const uint32_t> words) {
        if (bits == 2) {
            for (size_t i = 0; i < words.size(); i++) turned[i] = std::rotl(words[i], 2);
            return;
        }
        const auto third_bits = words.last(words.size() / 3);
        for (size_t i = 0; i < third_bits.size(); i++) {
            last[i] = std::rotl(third_bits[i], 1);
            turned[i] = third_bits[i] ^ last[i] ^ std::rotl(third_bits[i], 2);
        }
    }
};

} // namespace tq
