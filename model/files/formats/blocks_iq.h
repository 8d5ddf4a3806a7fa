// The formats with blocks of 256 weights that are entries of grids, and ternary ones: their fields, and decoders.
//
// A block is 32 groups of eight weights, and 16 runs of 16. A weight is scale(d, multiplier(block, run)) * (level - offset); the
// levels of a group are the bytes of levels_of(block, group), the first weight's lowest. d is the block's fp16 number.
#pragma once
#include "model/files/formats/block_reader.h"
#include "model/files/formats/grids.h"

namespace tq {

// A byte for each of 16 runs.
struct Multipliers {
    uint64_t first, last;
};

// Bytes of 1, and a number in each byte.
inline constexpr uint64_t ones = 0x0101010101010101u;

// Returns 2 n + 1 for each of eight nibbles, the lowest first, in bytes.
inline uint64_t odd_numbers(uint32_t nibbles) {
    uint64_t v = (nibbles | uint64_t(nibbles) << 16) & 0x0000ffff0000ffffu;
    v = (v | v << 8) & 0x00ff00ff00ff00ffu;
    v = (v | v << 4) & 0x0f0f0f0f0f0f0f0fu;
    return 2 * v + ones;
}

// Returns each of the lower four bytes twice: b0 b0 b1 b1 ...
inline uint64_t twice_each(uint64_t bytes) {
    uint64_t v = bytes & 0xffffffffu;
    v = (v | v << 16) & 0x0000ffff0000ffffu;
    v = (v | v << 8) & 0x00ff00ff00ff00ffu;
    return v | v << 8;
}
inline Multipliers of_eight(uint64_t eight) { return {twice_each(eight), twice_each(eight >> 32)}; }

// Returns offset + m, or offset - m if a sign is set, for eight magnitudes m of at most 127 and the offset.
template <int offset> inline uint64_t with_signs(uint64_t magnitudes, uint8_t signs) {
    return offset * ones + magnitudes - ((magnitudes & sign_masks[signs]) << 1); // no byte borrows from the next
}

// half d; for each 32 weights four bytes of indices, then a word with four times seven signs and a scale of four bits
struct Iq2Xxs {
    static constexpr size_t bytes = 66;
    static constexpr int offset = 128;
    static float d(const std::byte* x) { return load_fp16(x); }
    static float scale(float d, uint32_t multiplier) { return d * 0.125f * float(multiplier); }
    static uint32_t index(const std::byte* x, size_t g) { return uint32_t(x[2 + 8 * (g / 4) + g % 4]); }
    static uint64_t magnitudes(const std::byte* x, size_t g) { return iq2_xxs_grid[index(x, g)]; }
    static uint8_t signs(const std::byte* x, size_t g) {
        return even_signs[load<uint32_t>(x + 6 + 8 * (g / 4)) >> 7 * (g % 4) & 127];
    }
    static Multipliers multipliers(const std::byte* x) {
        uint32_t nibbles = 0;
        for (size_t j = 0; j < 8; j++) nibbles |= uint32_t(x[9 + 8 * j] >> 4) << 4 * j;
        return of_eight(odd_numbers(nibbles));
    }
};

// half d; for each group 9 bits of index, then seven signs; a nibble for each run
struct Iq2Xs {
    static constexpr size_t bytes = 74;
    static constexpr int offset = 128;
    static float d(const std::byte* x) { return load_fp16(x); }
    static float scale(float d, uint32_t multiplier) { return d * 0.125f * float(multiplier); }
    static uint32_t index(const std::byte* x, size_t g) { return load<uint16_t>(x + 2 + 2 * g) & 511; }
    static uint64_t magnitudes(const std::byte* x, size_t g) { return iq2_xs_grid[index(x, g)]; }
    static uint8_t signs(const std::byte* x, size_t g) { return even_signs[size_t(x[3 + 2 * g] >> 1)]; }
    static Multipliers multipliers(const std::byte* x) {
        return {odd_numbers(load<uint32_t>(x + 66)), odd_numbers(load<uint32_t>(x + 70))};
    }
};

// half d; for each group the low byte of its index; its signs; for each 32 weights a byte of pairs of high bits; nibbles of runs
struct Iq2S {
    static constexpr size_t bytes = 82;
    static constexpr int offset = 128;
    static float d(const std::byte* x) { return load_fp16(x); }
    static float scale(float d, uint32_t multiplier) { return d * 0.125f * float(multiplier); }
    static uint32_t index(const std::byte* x, size_t g) {
        return uint32_t(x[2 + g]) | (uint32_t(x[66 + g / 4]) << (8 - 2 * (g % 4)) & 0x300);
    }
    static uint64_t magnitudes(const std::byte* x, size_t g) { return iq2_s_grid[index(x, g)]; }
    static uint8_t signs(const std::byte* x, size_t g) { return uint8_t(x[34 + g]); }
    static Multipliers multipliers(const std::byte* x) {
        return {odd_numbers(load<uint32_t>(x + 74)), odd_numbers(load<uint32_t>(x + 78))};
    }
};

// half d; a byte of index for each four weights; for each 32 a word with four times seven signs and a scale of four bits
struct Iq3Xxs {
    static constexpr size_t bytes = 98;
    static constexpr int offset = 128;
    static float d(const std::byte* x) { return load_fp16(x); }
    static float scale(float d, uint32_t multiplier) { return d * 0.25f * float(multiplier); }
    static uint32_t index(const std::byte* x, size_t i) { return uint32_t(x[2 + i]); } // of four weights
    static uint64_t magnitudes(const std::byte* x, size_t g) {
        return iq3_xxs_grid[index(x, 2 * g)] | uint64_t(iq3_xxs_grid[index(x, 2 * g + 1)]) << 32;
    }
    static uint8_t signs(const std::byte* x, size_t g) {
        return even_signs[load<uint32_t>(x + 66 + 4 * (g / 4)) >> 7 * (g % 4) & 127];
    }
    static Multipliers multipliers(const std::byte* x) {
        uint32_t nibbles = 0;
        for (size_t j = 0; j < 8; j++) nibbles |= uint32_t(x[69 + 4 * j] >> 4) << 4 * j;
        return of_eight(odd_numbers(nibbles));
    }
};

// half d; for each four weights the low byte of its index; the ninth bits; signs; a nibble for each 32 weights
struct Iq3S {
    static constexpr size_t bytes = 110;
    static constexpr int offset = 16;
    static float d(const std::byte* x) { return load_fp16(x); }
    static float scale(float d, uint32_t multiplier) { return d * float(multiplier); }
    static uint32_t index(const std::byte* x, size_t i) { // of four weights
        return uint32_t(x[2 + i]) | (uint32_t(x[66 + i / 8]) << (8 - i % 8) & 0x100);
    }
    static uint64_t magnitudes(const std::byte* x, size_t g) {
        return iq3_s_grid[index(x, 2 * g)] | uint64_t(iq3_s_grid[index(x, 2 * g + 1)]) << 32;
    }
    static uint8_t signs(const std::byte* x, size_t g) { return uint8_t(x[74 + g]); }
    static Multipliers multipliers(const std::byte* x) { return of_eight(odd_numbers(load<uint32_t>(x + 106))); }
};

// Levels of IQ1 are 8 times those of the grid and 1 more or less: weights are scales times a grid's -1, 0 or 1 plus 1/8 or -1/8.
inline uint64_t iq1_levels(uint32_t index, bool less) {
    return iq1_grid[index] + (2 * ones & (uint64_t(less) - 1)); // no branch: half of them would be mispredicted
}

// half d; for each group the low byte of its index; for each 32 weights 16 bits: four times three high bits, three of scale, one
// of the sign of 1/8
struct Iq1S {
    static constexpr size_t bytes = 50;
    static constexpr int offset = 16;
    static float d(const std::byte* x) { return load_fp16(x); }
    static float scale(float d, uint32_t multiplier) { return d * 0.125f * float(multiplier); }
    static uint32_t index(const std::byte* x, size_t g) {
        const uint32_t high = load<uint16_t>(x + 34 + 2 * (g / 4)); // its bits 3 (g % 4) and above are moved to 8
        return uint32_t(x[2 + g]) | ((g % 4 == 3 ? high >> 1 : high << (8 - 3 * (g % 4))) & 0x700);
    }
    static uint64_t levels(const std::byte* x, size_t g) {
        return iq1_levels(index(x, g), (load<uint16_t>(x + 34 + 2 * (g / 4)) >> 15) != 0);
    }
    static Multipliers multipliers(const std::byte* x) {
        uint32_t nibbles = 0;
        for (size_t j = 0; j < 8; j++) nibbles |= (uint32_t(x[35 + 2 * j]) >> 4 & 7) << 4 * j;
        return of_eight(odd_numbers(nibbles));
    }
};

// For each group the low byte of its index; for each two groups a byte: twice three high bits and the sign of 1/8; four words of
// 16 bits, each three bits of four runs and a nibble of d
struct Iq1M {
    static constexpr size_t bytes = 56;
    static constexpr int offset = 16;
    static uint16_t half_d(const std::byte* x) {
        uint32_t bits = 0;
        for (size_t i = 0; i < 4; i++) bits |= uint32_t(x[49 + 2 * i] >> 4) << 4 * i;
        return uint16_t(bits);
    }
    static float d(const std::byte* x) { return half_to_float(half_d(x)); }
    static float scale(float d, uint32_t multiplier) { return d * 0.125f * float(multiplier); }
    static uint32_t index(const std::byte* x, size_t g) {
        return uint32_t(x[g]) | (uint32_t(x[32 + g / 2]) << (8 - 4 * (g % 2)) & 0x700);
    }
    static uint64_t levels(const std::byte* x, size_t g) {
        return iq1_levels(index(x, g), (uint32_t(x[32 + g / 2]) >> (4 * (g % 2) + 3) & 1) != 0);
    }
    static Multipliers multipliers(const std::byte* x) {
        return {odd_of(load<uint32_t>(x + 48)), odd_of(load<uint32_t>(x + 52))};
    }

  private:
    // Returns 2 n + 1 for eight numbers of three bits, four in each half of a word.
    static uint64_t odd_of(uint32_t word) {
        uint64_t v = (word & 0xfff) | uint64_t(word >> 16 & 0xfff) << 32;
        v = (v & 0x0000003f0000003fu) | (v & 0x00000fc000000fc0u) << 10;
        v = (v & 0x0007000700070007u) | (v & 0x0038003800380038u) << 5;
        return 2 * v + ones;
    }
};

// A format with magnitudes and signs has these instead of levels.
template <class Format>
concept HasSigns = requires(const std::byte* x) { Format::signs(x, 0); };

// Returns the levels of group g of the block at x.
template <class Format> uint64_t levels_of(const std::byte* x, size_t g) {
    if constexpr (HasSigns<Format>)
        return with_signs<Format::offset>(Format::magnitudes(x, g), Format::signs(x, g));
    else
        return Format::levels(x, g);
}

void decode_iq2_xxs(float* y, const std::byte* x, size_t blocks);
void decode_iq2_xs(float* y, const std::byte* x, size_t blocks);
void decode_iq2_s(float* y, const std::byte* x, size_t blocks);
void decode_iq3_xxs(float* y, const std::byte* x, size_t blocks);
void decode_iq3_s(float* y, const std::byte* x, size_t blocks);
void decode_iq1_s(float* y, const std::byte* x, size_t blocks);
void decode_iq1_m(float* y, const std::byte* x, size_t blocks);
void decode_tq1_0(float* y, const std::byte* x, size_t blocks);
void decode_tq2_0(float* y, const std::byte* x, size_t blocks);

void decode_q1_0(float* y, const std::byte* x, size_t blocks);
void decode_q2_0(float* y, const std::byte* x, size_t blocks);

// to = the two blocks of Q2_0 with the weights of the block of Q1_0 at `from`.
void q1_0_to_q2_0(std::byte* to, const std::byte* from);
// to = the block of TQ2_0 with the weights of the block of TQ1_0 at `from`.
void tq1_0_to_tq2_0(std::byte* to, const std::byte* from);

} // namespace tq
