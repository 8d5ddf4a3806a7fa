// BLAKE2s as RFC 7693 describes it: blocks of 64 bytes, words little-endian whatever the machine is, ten rounds of mixing for
// each block. The state h is 8 words; the parameters, here the length of the hash alone, go into its first one. The last block is
// padded with zeros and marked, and may be full: so the loop leaves at least one byte for it, and an empty input is one empty
// block.
// It is here, rather than from a library, because the names of pages in the prefix cache need a hash in every build, also in
// those without OpenSSL.
#include "base/blake2s.h"
#include "base/ensure.h"
#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>

namespace tq {
namespace {

using Words = std::array<uint32_t, 8>;
using Block = std::span<const std::byte, 64>;

constexpr Words initial{0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};

// SIGMA: which words of the block each round mixes.
constexpr uint8_t schedule[10][16] = {
    {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}, {14, 10, 4, 8, 9, 15, 13, 6, 1, 12, 0, 2, 11, 7, 5, 3},
    {11, 8, 12, 0, 5, 2, 15, 13, 10, 14, 3, 6, 7, 1, 9, 4}, {7, 9, 3, 1, 13, 12, 11, 14, 2, 6, 5, 10, 4, 0, 15, 8},
    {9, 0, 5, 7, 2, 4, 10, 15, 14, 1, 11, 12, 6, 8, 3, 13}, {2, 12, 6, 10, 0, 11, 8, 3, 4, 13, 7, 5, 15, 14, 1, 9},
    {12, 5, 1, 15, 14, 13, 4, 10, 0, 7, 6, 3, 9, 2, 8, 11}, {13, 11, 7, 14, 12, 1, 3, 9, 5, 0, 15, 4, 8, 6, 2, 10},
    {6, 15, 14, 9, 11, 3, 0, 8, 12, 2, 13, 7, 1, 4, 10, 5}, {10, 2, 8, 4, 7, 6, 1, 5, 15, 11, 9, 14, 3, 12, 13, 0},
};

uint32_t word_at(Block block, size_t i) {
    uint32_t word = 0;
    for (size_t byte = 0; byte < 4; byte++) word |= std::to_integer<uint32_t>(block[i * 4 + byte]) << 8 * byte;
    return word;
}

void mix(uint32_t& a, uint32_t& b, uint32_t& c, uint32_t& d, uint32_t x, uint32_t y) {
    a += b + x;
    d = std::rotr(d ^ a, 16);
    c += d;
    b = std::rotr(b ^ c, 12);
    a += b + y;
    d = std::rotr(d ^ a, 8);
    c += d;
    b = std::rotr(b ^ c, 7);
}

// `count`: of all bytes up to the end of this block, without padding.
void compress(Words& h, Block block, uint64_t count, bool is_last) {
    uint32_t m[16], v[16];
    for (size_t i = 0; i < 16; i++) m[i] = word_at(block, i);
    std::ranges::copy(h, v);
    std::ranges::copy(initial, v + 8);
    v[12] ^= uint32_t(count);
    v[13] ^= uint32_t(count >> 32);
    if (is_last) v[14] = ~v[14];
    for (const auto& order : schedule) {
        const auto word = [&](size_t i) { return m[order[i]]; };
        mix(v[0], v[4], v[8], v[12], word(0), word(1)); // columns
        mix(v[1], v[5], v[9], v[13], word(2), word(3));
        mix(v[2], v[6], v[10], v[14], word(4), word(5));
        mix(v[3], v[7], v[11], v[15], word(6), word(7));
        mix(v[0], v[5], v[10], v[15], word(8), word(9)); // diagonals
        mix(v[1], v[6], v[11], v[12], word(10), word(11));
        mix(v[2], v[7], v[8], v[13], word(12), word(13));
        mix(v[3], v[4], v[9], v[14], word(14), word(15));
    }
    for (size_t i = 0; i < 8; i++) h[i] ^= v[i] ^ v[i + 8];
}

} // namespace

void blake2s(std::span<std::byte> hash, std::span<const std::byte> bytes) {
    ENSURE(!hash.empty() && hash.size() <= 32, "a hash of {} bytes", hash.size());
    Words h = initial;
    h[0] ^= 0x01010000 ^ uint32_t(hash.size()); // neither a key nor a tree
    uint64_t count = 0;
    for (; bytes.size() > 64; bytes = bytes.subspan(64)) compress(h, bytes.first<64>(), count += 64, false);
    std::array<std::byte, 64> last{};
    std::ranges::copy(bytes, last.begin());
    compress(h, last, count + bytes.size(), true);
    for (size_t i = 0; i < hash.size(); i++) hash[i] = std::byte(h[i / 4] >> 8 * (i % 4));
}

} // namespace tq
