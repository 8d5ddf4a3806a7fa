// Repacks blocks from the file's order of bits to the device's (device_blocks.h), once for each block when a model is loaded. All
// work is done on words of 32 bits with masks and shifts, several values at a time, as all of a model's blocks pass through here.
// No bit is lost or added.
#include "model/files/formats/device_blocks.h"
#include <array>
#include <cstdint>
#include <cstring>

namespace tq {
namespace {

template <size_t count> using Words = std::array<uint32_t, count>;

template <size_t count> Words<count> load_words(const std::byte* from) {
    Words<count> words;
    std::memcpy(words.data(), from, sizeof words);
    return words;
}

template <size_t count> void store_words(std::byte* to, const Words<count>& words) {
    std::memcpy(to, words.data(), sizeof words);
}

// Bit 4 k + m of a word moves to bit 8 m + k: ggml's order of fifth bits.
uint32_t spread_bits(uint32_t bits) {
    uint32_t out = 0;
    for (int k = 0; k < 8; k++) out |= ((bits >> 4 * k & 15) * 0x00204081u & 0x01010101u) << k;
    return out;
}

// From: 32 bytes, bit j of byte l that of weight 32 j + l.
Words<8> arrange_bits(const std::byte* from) {
    const auto in = load_words<8>(from);
    Words<8> out{};
    for (int j = 0; j < 8; j++)
        for (int k = 0; k < 8; k++) out[j] |= (in[k] >> j & 0x01010101u) << k;
    return out;
}

// From: two runs of 32 bytes, the pair at bits 2 g of byte l of run n that of weight 128 n + 32 g + l.
Words<16> arrange_pairs(const std::byte* from) {
    const auto in = load_words<16>(from);
    Words<16> out{};
    for (int n = 0; n < 2; n++)
        for (int g = 0; g < 4; g++)
            for (int i = 0; i < 8; i++) out[2 * (4 * n + g) + i / 4] |= (in[8 * n + i] >> 2 * g & 0x03030303u) << 2 * (i % 4);
    return out;
}

// From: four runs of 32 bytes, the low nibbles of run r those of sub-block low[r], the high ones of sub-block high[r].
Words<32> arrange_nibbles(const std::byte* from, const std::array<int, 4>& low, const std::array<int, 4>& high) {
    constexpr uint32_t low_nibbles = 0x0f0f0f0fu, high_nibbles = 0xf0f0f0f0u;
    const auto in = load_words<32>(from);
    Words<32> out;
    for (int r = 0; r < 4; r++)
        for (int k = 0; k < 4; k++) {
            const uint32_t a = in[8 * r + k], b = in[8 * r + 4 + k];
            out[4 * low[r] + k] = (a & low_nibbles) | (b & low_nibbles) << 4;
            out[4 * high[r] + k] = (a >> 4 & low_nibbles) | (b & high_nibbles);
        }
    return out;
}

// Returns the low nibbles of four bytes, in 16 bits; the pairs at bits 4 and 5 of four bytes, in 8 bits.
// Moves bits 0..3 of bytes 0, 1, 2, 3 to nibbles 0, 1, 2, 3. First each pair of bytes becomes one byte, then the two are joined.
uint32_t low_nibbles_of(uint32_t bytes) {
    const uint32_t two = (bytes & 0x000f000fu) | (bytes >> 4 & 0x00f000f0u);
    return (two & 0xff) | (two >> 8 & 0xff00);
}
uint32_t high_pairs_of(uint32_t bytes) {
    return (bytes >> 4 & 3) | (bytes >> 10 & 12) | (bytes >> 16 & 48) | (bytes >> 22 & 192);
}

// The header of Q4_K and Q5_K.
// Scales and minimums are 6 bits each. The file has those of sub-blocks 0..3 whole in one byte each, and the others' low nibbles
// and high pairs apart. Here all eight have their nibbles in one word, and the pairs of bits of all sixteen are in another, so
// that a kernel finds each by one shift.
Words<4> arrange_header(const std::byte* from) {
    const auto [d, a, b, c] = load_words<4>(from);
    const uint32_t scales[] = {a & 0x3f3f3f3fu, (c & 0x0f0f0f0fu) | (a >> 2 & 0x30303030u)},
                   minimums[] = {b & 0x3f3f3f3fu, (c >> 4 & 0x0f0f0f0fu) | (b >> 2 & 0x30303030u)};
    return {d, low_nibbles_of(scales[0]) | low_nibbles_of(scales[1]) << 16,
            low_nibbles_of(minimums[0]) | low_nibbles_of(minimums[1]) << 16,
            high_pairs_of(scales[0]) | high_pairs_of(scales[1]) << 8 | high_pairs_of(minimums[0]) << 16 |
                high_pairs_of(minimums[1]) << 24};
}

// The signs of 32 weights from four times seven, the eighth ones replaced by the bits of `others`.
uint32_t arrange_signs(uint32_t sevens, uint32_t others) {
    uint32_t bits = 0;
    for (int g = 0; g < 4; g++) bits |= ((sevens >> 7 * g & 127) | (others >> g & 1) << 7) << 8 * g;
    return spread_bits(bits);
}

constexpr std::array<int, 4> even{0, 2, 4, 6}, odd{1, 3, 5, 7};

} // namespace

void arrange_q5_0(std::byte* to, const std::byte* from) {
    std::memcpy(to, from, 22);
    store_words(to + 2, Words<1>{spread_bits(load_words<1>(from + 2)[0])});
}

void arrange_q5_1(std::byte* to, const std::byte* from) {
    std::memcpy(to, from, 24);
    store_words(to + 4, Words<1>{spread_bits(load_words<1>(from + 4)[0])});
}

void arrange_q2_k(std::byte* to, const std::byte* from) {
    std::memcpy(to, from, 16);
    store_words(to + 16, arrange_pairs(from + 16));
    std::memcpy(to + 80, from + 80, 4);
}

void arrange_q3_k(std::byte* to, const std::byte* from) {
    store_words(to, arrange_bits(from));
    store_words(to + 32, arrange_pairs(from + 32));
    const auto [a, b, high] = load_words<3>(from + 96); // low nibbles of scales 0 ... 7 are low ones, of 8 ... 15 high ones
    uint32_t pairs = 0;
    for (int k = 0; k < 16; k++) pairs |= (high >> (8 * (k % 4) + 2 * (k / 4)) & 3) << 2 * k;
    store_words(to + 96, Words<3>{low_nibbles_of(a) | low_nibbles_of(b) << 16,
                                  low_nibbles_of(a >> 4) | low_nibbles_of(b >> 4) << 16, pairs});
    std::memcpy(to + 108, from + 108, 2);
}

void arrange_q4_k(std::byte* to, const std::byte* from) {
    store_words(to, arrange_header(from));
    store_words(to + 16, arrange_nibbles(from + 16, even, odd));
}

void arrange_q5_k(std::byte* to, const std::byte* from) {
    store_words(to, arrange_header(from));
    store_words(to + 16, arrange_bits(from + 16));
    store_words(to + 48, arrange_nibbles(from + 48, even, odd));
}

void arrange_q6_k(std::byte* to, const std::byte* from) {
    store_words(to, arrange_nibbles(from, {0, 1, 4, 5}, {2, 3, 6, 7}));
    store_words(to + 128, arrange_pairs(from + 128));
    std::memcpy(to + 192, from + 192, 18);
}

void arrange_tq2_0(std::byte* to, const std::byte* from) {
    store_words(to, arrange_pairs(from));
    std::memcpy(to + 64, from + 64, 2);
}

// The pair of weight 4 k + m of a word moves from bit 8 k + 2 m to bit 8 m + 2 k: first the low bits of k and m change places,
// then the high ones.
void arrange_q2_0(std::byte* to, const std::byte* from) {
    std::memcpy(to, from, 2);
    auto words = load_words<4>(from + 2);
    for (uint32_t& word : words) {
        const uint32_t low = (word >> 6 ^ word) & 0x00cc00ccu;
        word ^= low ^ low << 6;
        const uint32_t high = (word >> 12 ^ word) & 0x0000f0f0u;
        word ^= high ^ high << 12;
    }
    store_words(to + 2, words);
}

void arrange_iq2_xxs(std::byte* to, const std::byte* from) {
    std::memcpy(to, from, 66);
    for (int j = 0; j < 8; j++) {
        const auto [signs] = load_words<1>(from + 6 + 8 * j);
        store_words(to + 6 + 8 * j, Words<1>{arrange_signs(signs, signs >> 28)});
    }
}

void arrange_iq2_xs(std::byte* to, const std::byte* from) {
    std::memcpy(to, from, 74);
    for (int j = 0; j < 8; j++) {
        const auto [a, b] = load_words<2>(from + 2 + 8 * j); // four times 9 bits of index and 7 of signs
        const uint32_t low = (a & 255) | (a >> 8 & 0xff00) | (b & 255) << 16 | (b << 8 & 0xff000000);
        const uint32_t signs = (a >> 9 & 127) | (a >> 25) << 7 | (b >> 9 & 127) << 14 | (b >> 25) << 21;
        const uint32_t high = (a >> 8 & 1) | (a >> 23 & 2) | (b >> 6 & 4) | (b >> 21 & 8);
        store_words(to + 2 + 8 * j, Words<2>{low, arrange_signs(signs, high)});
    }
}

void arrange_iq2_s(std::byte* to, const std::byte* from) {
    std::memcpy(to, from, 2);
    const auto low = load_words<8>(from + 2), signs = load_words<8>(from + 34);
    for (int j = 0; j < 8; j++) {
        store_words(to + 2 + 8 * j, Words<2>{low[j], spread_bits(signs[j])});
        to[66 + 2 * j] = from[66 + j];
        to[67 + 2 * j] = from[74 + j];
    }
}

void arrange_iq3_xxs(std::byte* to, const std::byte* from) {
    std::memcpy(to, from, 66);
    auto signs = load_words<8>(from + 66);
    for (uint32_t& word : signs) word = arrange_signs(word, word >> 28);
    store_words(to + 66, signs);
}

void arrange_iq3_s(std::byte* to, const std::byte* from) {
    std::memcpy(to, from, 66);
    auto signs = load_words<8>(from + 74);
    for (uint32_t& word : signs) word = spread_bits(word);
    store_words(to + 66, signs);
    std::memcpy(to + 98, from + 66, 8);
    std::memcpy(to + 106, from + 106, 4);
}

// The file has the nibbles of 16 weights in 8 bytes, the device those of 32 in 16 as in Q4_0. So two runs of the file make one of
// the device's.
void arrange_nvfp4(std::byte* to, const std::byte* from) {
    constexpr uint32_t low_nibbles = 0x0f0f0f0fu, high_nibbles = 0xf0f0f0f0u;
    const auto scales = load_words<1>(from);
    const auto in = load_words<8>(from + 4); // two for each 16 weights
    Words<8> out;
    for (int half = 0; half < 8; half += 4)
        for (int k = 0; k < 2; k++) {
            const uint32_t first = in[half + k], second = in[half + 2 + k];
            out[half + k] = (first & low_nibbles) | (second & low_nibbles) << 4;
            out[half + 2 + k] = (first >> 4 & low_nibbles) | (second & high_nibbles);
        }
    store_words(to, out);
    store_words(to + 32, scales);
}

// The block's fp16 scale is spread over the upper nibbles of four words, the other 12 bits of each are multipliers of 3 bits.
void arrange_iq1_m(std::byte* to, const std::byte* from) {
    std::memcpy(to, from, 48);
    uint64_t d = 0, scales = 0;
    for (int i = 0; i < 4; i++) {
        uint16_t word;
        std::memcpy(&word, from + 48 + 2 * i, 2);
        d |= uint64_t(word >> 12) << 4 * i;
        scales |= uint64_t(word & 0xfff) << 12 * i;
    }
    const uint64_t both = d | scales << 16;
    std::memcpy(to + 48, &both, 8);
}

} // namespace tq
