// Trellis-coded levels of tq2t, tq3t and tq4t: a code's level depends on the codes before it in its run, so that 16 or 32
// levels take two to four bits, and an encoder searches for the nearest sequence of levels. turboquant.md, section "Trellises".
#pragma once
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>

namespace tq {

// Returns the signed levels of a type of `bits` bits, by index: 16, those of tq4t and then their negatives.
std::span<const int8_t> trellis_levels(uint32_t bits);

// Returns the level index of channel i of codes[head_dim].
uint32_t trellis_index(uint32_t bits, std::span<const uint32_t> codes, size_t i);

// codes[d] = those whose levels, levels[d], are nearest to y[d], |y|^2 = norm2 > 0; d = 64, 128 or 256.
void choose_trellis_codes(uint32_t bits, std::span<uint32_t> codes, std::span<int32_t> levels, std::span<const float> y,
                          float norm2);

// The words of a stored vector, rearranged for parallel lookup of indices. Two bits: the indices of even channels are the
// nibbles of `turned`, those of odd channels the nibbles of the words themselves. Three: `turned` and `last` are planes of the
// indices' bits 2 and 3, with as many words as the plane of third bits; their low bits are the codes'. Four: the nibbles of
// `turned` are the indices' low bits, and bit 3 of those of `last` is their bit 4, which negates.
struct TrellisPlanes {
    uint32_t turned[32], last[32];

    TrellisPlanes(uint32_t bits, std::span<const uint32_t> words) {
        if (bits == 2) {
            for (size_t i = 0; i < words.size(); i++) turned[i] = std::rotl(words[i], 2);
            return;
        }
        if (bits == 4) {
            for (size_t i = 0; i < words.size(); i++) {
                const uint32_t before = words[(i & ~size_t(3)) | ((i + 3) & 3)], highest_bits = 0x88888888;
                turned[i] = words[i] ^ ((words[i] << 8 | before >> 24) & highest_bits);
                last[i] = (words[i] << 4 | before >> 28) & highest_bits;
            }
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
