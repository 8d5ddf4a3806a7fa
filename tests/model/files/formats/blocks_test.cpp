// Block formats against decoders written from the closed formulas, one element at a time in double, and halves exhaustively.
#include "base/blake2s.h"
#include "base/half.h"
#include "model/files/formats/blocks.h"
#include "model/files/formats/grids.h"
#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <doctest/doctest.h>
#include <limits>
#include <random>
#include <vector>

using namespace tq;

namespace {

using Block = const uint8_t*;

// The value of the half at p by its definition.
double half_at(Block p) {
    const int bits = p[0] | p[1] << 8, exponent = bits >> 10 & 31, fraction = bits & 1023;
    const double sign = bits & 0x8000 ? -1 : 1;
    if (exponent == 31) return fraction != 0 ? std::nan("") : sign * INFINITY;
    return exponent == 0 ? sign * std::ldexp(fraction, -24) : sign * std::ldexp(1024 + fraction, exponent - 25);
}

int lo(int b) { return b & 15; }
int hi(int b) { return b >> 4; }

// The 6-bit scale and minimum j of Q4_K and Q5_K.
std::pair<int, int> scale_min(Block s, int j) {
    if (j < 4) return {s[j] & 63, s[j + 4] & 63};
    return {lo(s[j + 4]) | (s[j - 4] >> 6) << 4, hi(s[j + 4]) | (s[j] >> 6) << 4};
}

// d q - m: the products are multiples of 2^-24 below 2^28, so that the difference is exact in double and rounds once, to float.
float with_min(double d, double m, int q) { return float(d * q - m); }

float with_scale_min(Block x, Block scales, int j, int q) {
    const auto [sc, mn] = scale_min(scales, j);
    return with_min(half_at(x) * sc, half_at(x + 2) * mn, q);
}

// The 6-bit scale k of Q3_K.
int scale_q3_k(Block s, int k) { return ((s[k % 8] >> 4 * (k / 8)) & 15) | ((s[8 + k % 4] >> 2 * (k / 4)) & 3) << 4; }

// Nibble i of a block of 32: the low ones come first.
int nibble(Block qs, int i) { return i < 16 ? lo(qs[i]) : hi(qs[i - 16]); }
int five_bits(Block high, Block qs, int i) { return nibble(qs, i) + 16 * (high[i / 8] >> i % 8 & 1); }

constexpr std::array iq4{-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};
constexpr std::array e2m1{0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

// Element i of the block of 32 at x.
float expected_small(GgmlType type, Block x, int i) {
    switch (type) {
    case GgmlType::Q8_0: return float(half_at(x) * (x[2 + i] < 128 ? x[2 + i] : x[2 + i] - 256));
    case GgmlType::Q4_0: return float(half_at(x) * (nibble(x + 2, i) - 8));
    case GgmlType::Q4_1: return with_min(half_at(x), -half_at(x + 2), nibble(x + 4, i));
    case GgmlType::Q5_0: return float(half_at(x) * (five_bits(x + 2, x + 6, i) - 16));
    case GgmlType::Q5_1: return with_min(half_at(x), -half_at(x + 2), five_bits(x + 4, x + 8, i));
    case GgmlType::IQ4_NL: return float(half_at(x) * iq4[size_t(nibble(x + 2, i))]);
    case GgmlType::MXFP4: return x[0] == 255 ? NAN : float(std::ldexp(e2m1[size_t(nibble(x + 1, i))], x[0] - 128));
    default: FAIL("not a block of 32: " << type_name(type));
    }
    return 0;
}

// Element i of the block of 64 at x.
float expected_nvfp4(Block x, int i) {
    const int scale = x[i / 16] & 0x7f, byte = x[4 + 8 * (i / 16) + i % 8], exponent = scale / 8, fraction = scale % 8;
    const double half = exponent == 0 ? std::ldexp(fraction, -10) : std::ldexp(8 + fraction, exponent - 11);
    return x[i / 16] == 0x7f ? 0.0f * float(e2m1[size_t(i % 16 < 8 ? lo(byte) : hi(byte))])
                             : float(half * e2m1[size_t(i % 16 < 8 ? lo(byte) : hi(byte))]);
}

// Element i of the block of 256 at x.
float expected_large(GgmlType type, Block x, int i) {
    const int n = i / 128, l = i % 32, j = i / 32, k = i / 16, g = i % 128 / 32;
    switch (type) {
    case GgmlType::Q2_K:
        return with_min(half_at(x + 80) * lo(x[k]), half_at(x + 82) * hi(x[k]), (x[16 + 32 * n + l] >> 2 * g) & 3);
    case GgmlType::Q3_K: {
        const int q = ((x[32 + 32 * n + l] >> 2 * g) & 3) - ((x[l] >> j & 1) ? 0 : 4);
        return float(half_at(x + 108) * (scale_q3_k(x + 96, k) - 32) * q);
    }
    case GgmlType::Q4_K: return with_scale_min(x, x + 4, j, (x[16 + 32 * (i / 64) + l] >> 4 * (j & 1)) & 15);
    case GgmlType::Q5_K: {
        const int low = (x[48 + 32 * (i / 64) + l] >> 4 * (j & 1)) & 15;
        return with_scale_min(x, x + 4, j, low + 16 * (x[16 + l] >> j & 1));
    }
    case GgmlType::Q6_K: {
        const int low = (x[64 * n + 32 * (g & 1) + l] >> 4 * (g >> 1)) & 15, high = (x[128 + 32 * n + l] >> 2 * g) & 3;
        const int scale = x[192 + k] < 128 ? x[192 + k] : x[192 + k] - 256;
        return float(half_at(x + 208) * scale * ((low | high << 4) - 32));
    }
    case GgmlType::IQ4_XS: {
        const int ls = ((x[4 + j / 2] >> 4 * (j & 1)) & 15) | ((x[2] | x[3] << 8) >> 2 * j & 3) << 4;
        return float(half_at(x) * (ls - 32) * iq4[size_t(nibble(x + 8 + 16 * j, l))]);
    }
    case GgmlType::TQ2_0: return float(half_at(x + 64) * (((x[32 * n + l] >> 2 * g) & 3) - 1));
    case GgmlType::TQ1_0: {
        const int byte = i < 160   ? i % 32
                         : i < 240 ? 32 + i % 16
                                   : 48 + i % 4,
                  digit = i < 160   ? i / 32
                          : i < 240 ? i / 16 - 10
                                    : i / 4 - 60;
        return float(half_at(x + 52) * (int(std::fmod(x[byte] * std::pow(3, digit) / 256, 1) * 3) - 1));
    }
    default: FAIL("not a block of 256: " << type_name(type));
    }
    return 0;
}

// Code k of an entry of a grid.
int code(const auto& codes, int index, int bits, int k) {
    return int(codes[size_t(index / 2)] >> (16 * (index % 2) + bits * k) & ((1u << bits) - 1));
}
constexpr std::array iq2_magnitudes{8, 25, 43};
constexpr std::array iq3_magnitudes{4, 12, 20, 28, 36, 44, 52, 62};

// Sign i % 8 of a group that has seven: the number of negative weights is even.
bool is_negative(uint32_t seven, int i) { return i % 8 < 7 ? (seven >> i % 8 & 1) != 0 : std::popcount(seven & 127) % 2 != 0; }
uint32_t word_at(Block p) { return p[0] | uint32_t(p[1]) << 8 | uint32_t(p[2]) << 16 | uint32_t(p[3]) << 24; }
int nibble_of_run(Block p, int i) { return (p[i / 2] >> 4 * (i & 1)) & 15; }

// Element i of a block of 256 weights that are entries of a grid.
float expected_in_grid(GgmlType type, Block x, int i) {
    const int j = i / 32, g = i / 8, run = i / 16, four = i / 4, k = i % 8;
    const auto with = [&](double scale, int magnitude, bool negative) {
        return float(half_at(x) * scale * (negative ? -magnitude : magnitude));
    };
    switch (type) {
    case GgmlType::IQ2_XXS: {
        const uint32_t signs = word_at(x + 6 + 8 * j);
        return with((0.5 + (signs >> 28)) / 4, iq2_magnitudes[size_t(code(iq2_xxs_codes, x[2 + 8 * j + g % 4], 2, k))],
                    is_negative(signs >> 7 * (g % 4), i));
    }
    case GgmlType::IQ2_XS: {
        const int both = x[2 + 2 * g] | x[3 + 2 * g] << 8;
        return with((0.5 + nibble_of_run(x + 66, run)) / 4, iq2_magnitudes[size_t(code(iq2_xs_codes, both & 511, 2, k))],
                    is_negative(uint32_t(both >> 9), i));
    }
    case GgmlType::IQ2_S: {
        const int index = x[2 + g] | (x[66 + j] >> 2 * (g % 4) & 3) << 8;
        return with((0.5 + nibble_of_run(x + 74, run)) / 4, iq2_magnitudes[size_t(code(iq2_s_codes, index, 2, k))],
                    (x[34 + g] >> k & 1) != 0);
    }
    case GgmlType::IQ3_XXS: {
        const uint32_t signs = word_at(x + 66 + 4 * j);
        return with((0.5 + (signs >> 28)) / 2, iq3_magnitudes[size_t(code(iq3_xxs_codes, x[2 + four], 4, i % 4))],
                    is_negative(signs >> 7 * (g % 4), i));
    }
    case GgmlType::IQ3_S: {
        const int index = x[2 + four] | (x[66 + j] >> four % 8 & 1) << 8;
        return with(1 + 2 * nibble_of_run(x + 106, j), 1 + 2 * code(iq3_s_codes, index, 4, i % 4), (x[74 + g] >> k & 1) != 0);
    }
    case GgmlType::IQ1_S: {
        const int high = x[34 + 2 * j] | x[35 + 2 * j] << 8, index = x[2 + g] | (high >> 3 * (g % 4) & 7) << 8;
        return float(half_at(x) * (1 + 2 * (high >> 12 & 7)) *
                     (code(iq1_codes, index, 2, k) - 1 + (high >> 15 ? -0.125 : 0.125)));
    }
    case GgmlType::IQ1_M: {
        const uint8_t d[] = {uint8_t(x[49] >> 4 | (x[51] & 240)), uint8_t(x[53] >> 4 | (x[55] & 240))};
        const int scales = x[48 + 2 * (run / 4)] | x[49 + 2 * (run / 4)] << 8, high = x[32 + g / 2] >> 4 * (g % 2);
        return float(half_at(d) * (1 + 2 * (scales >> 3 * (run % 4) & 7)) *
                     (code(iq1_codes, x[g] | (high & 7) << 8, 2, k) - 1 + ((high & 8) != 0 ? -0.125 : 0.125)));
    }
    default: FAIL("not a format with a grid: " << type_name(type));
    }
    return 0;
}

// Element i of the block at x.
float expected(GgmlType type, Block x, int i) {
    switch (block_format(type)->elements) {
    case 32: return expected_small(type, x, i);
    case 64: return type == GgmlType::NVFP4 ? expected_nvfp4(x, i) : float(half_at(x) * ((x[2 + i / 4] >> 2 * (i % 4) & 3) - 1));
    case 256: return block_format(type)->grid.empty() ? expected_large(type, x, i) : expected_in_grid(type, x, i);
    }
    if (type == GgmlType::F16) return float(half_at(x));
    if (type == GgmlType::BF16) return std::bit_cast<float>(uint32_t(x[0]) << 16 | uint32_t(x[1]) << 24);
    float f;
    std::memcpy(&f, x, 4);
    return f;
}

bool same_bits(float a, float b) {
    return (std::isnan(a) && std::isnan(b)) || std::bit_cast<uint32_t>(a) == std::bit_cast<uint32_t>(b);
}

// Byte offsets of the halves in a block.
std::vector<size_t> half_offsets(GgmlType type) {
    switch (type) {
    case GgmlType::Q4_1:
    case GgmlType::Q5_1:
    case GgmlType::Q4_K:
    case GgmlType::Q5_K: return {0, 2};
    case GgmlType::Q2_K: return {80, 82};
    case GgmlType::Q3_K: return {108};
    case GgmlType::Q6_K: return {208};
    case GgmlType::TQ1_0: return {52};
    case GgmlType::TQ2_0: return {64};
    case GgmlType::IQ1_M:
    case GgmlType::F32:
    case GgmlType::BF16:
    case GgmlType::MXFP4:
    case GgmlType::NVFP4: return {};
    default: return {0};
    }
}

void put_half(std::byte* to, uint16_t bits) { std::memcpy(to, &bits, 2); }

std::vector<std::byte> random_bytes(size_t n, uint32_t seed) {
    std::mt19937 random(seed);
    std::vector<std::byte> bytes(n);
    for (std::byte& b : bytes) b = std::byte(random());
    return bytes;
}

// Random levels with scales that are finite and nearly all normal: 0x3c00 clears the top exponent bit.
std::vector<std::byte> random_finite(GgmlType type, size_t blocks, uint32_t seed) {
    const BlockFormat& format = *block_format(type);
    auto bytes = random_bytes(blocks * format.bytes, seed);
    for (size_t b = 0; b < blocks; ++b) {
        std::byte* block = bytes.data() + b * format.bytes;
        for (const size_t at : half_offsets(type)) block[at + 1] &= std::byte(0xbf);
        if (type == GgmlType::F32) block[3] &= std::byte(0xbf);
        if (type == GgmlType::BF16) block[1] &= std::byte(0xbf);
        if (type == GgmlType::MXFP4) block[0] &= std::byte(0x7f);
        if (type == GgmlType::IQ1_M) block[55] &= std::byte(0xbf);
    }
    return bytes;
}

void check_decode(GgmlType type, const std::vector<std::byte>& bytes) {
    const BlockFormat& format = *block_format(type);
    const size_t blocks = bytes.size() / format.bytes;
    std::vector<float> y(blocks * format.elements, NAN);
    decode_row(type, y, bytes);
    size_t wrong = 0;
    for (size_t i = 0; i < y.size(); ++i) {
        const auto* block = reinterpret_cast<Block>(bytes.data()) + i / format.elements * format.bytes;
        wrong += !same_bits(y[i], expected(type, block, int(i % format.elements)));
    }
    CHECK(wrong == 0);
}

} // namespace

TEST_CASE("random blocks decode bit for bit") {
    for (const GgmlType type : weight_formats) {
        CAPTURE(type_name(type));
        const size_t blocks = block_format(type)->elements == 256 ? 500 : 3000;
        check_decode(type, random_finite(type, blocks, 1));
    }
}

TEST_CASE("blocks with any scale decode, infinite and NaN ones too") {
    for (const GgmlType type : weight_formats) {
        CAPTURE(type_name(type));
        check_decode(type, random_bytes(size_t(2000) * block_format(type)->bytes, 2));
    }
}

TEST_CASE("blocks with the least and greatest scales decode bit for bit") {
    constexpr std::array<uint16_t, 9> halves{0, 0x8000, 1, 0x8001, 0x3ff, 0x400, 0x3c00, 0x7bff, 0xfbff};
    for (const GgmlType type : weight_formats) {
        const auto offsets = half_offsets(type);
        if (offsets.empty() || block_format(type)->elements == 1) continue;
        CAPTURE(type_name(type));
        for (const uint16_t first : halves) {
            for (const uint16_t last : halves) {
                auto bytes = random_bytes(size_t(20) * block_format(type)->bytes, 7);
                for (size_t at = 0; at < bytes.size(); at += block_format(type)->bytes) {
                    put_half(bytes.data() + at + offsets.front(), first);
                    put_half(bytes.data() + at + offsets.back(), last);
                }
                check_decode(type, bytes);
            }
        }
    }
    for (int e = 0; e < 256; ++e) { // the levels of 2^-128, a subnormal float, to those of 2^126, some of which are infinite
        CAPTURE(e);
        auto bytes = random_bytes(20 * 17, 8);
        for (size_t at = 0; at < bytes.size(); at += 17) bytes[at] = std::byte(e);
        check_decode(GgmlType::MXFP4, bytes);
    }
}

TEST_CASE("the weight formats are those with a decoder") {
    for (uint32_t number = 0; number < 256; number++) {
        const auto type = GgmlType(number);
        CAPTURE(number);
        const bool is_one = std::ranges::find(weight_formats, type) != weight_formats.end();
        const bool becomes_one = type == GgmlType::TQ1_0 || type == GgmlType::Q1_0;
        CHECK((block_format(type) != nullptr) == (is_one || becomes_one));
    }
}

TEST_CASE("every byte of a block matters") {
    for (const GgmlType type : weight_formats) {
        CAPTURE(type_name(type));
        const BlockFormat& format = *block_format(type);
        auto block = random_finite(type, 1, 3);
        for (const size_t at : half_offsets(type)) {
            if (format.elements > 1) block[at + 1] = std::byte(0x3c);
        }
        if (type == GgmlType::MXFP4) block[0] = std::byte(0x70);
        if (type == GgmlType::NVFP4) std::fill_n(block.begin(), 4, std::byte(0x38));
        if (type == GgmlType::IQ1_M) set_block_scales(format, block.data(), 0x3c35);
        std::vector<float> before(format.elements), after(format.elements);
        decode_row(type, before, block);
        for (size_t i = 0; i < block.size(); ++i) {
            CAPTURE(i);
            block[i] ^= std::byte(0x11);
            decode_row(type, after, block);
            block[i] ^= std::byte(0x11);
            CHECK(std::memcmp(before.data(), after.data(), before.size() * 4) != 0);
        }
    }
}

TEST_CASE("a row need not be aligned") {
    for (const GgmlType type : weight_formats) {
        const BlockFormat& format = *block_format(type);
        const auto bytes = random_finite(type, 4, 4);
        std::vector<std::byte> shifted(bytes.size() + 1);
        std::copy(bytes.begin(), bytes.end(), shifted.begin() + 1);
        std::vector<float> a(4 * format.elements), b(4 * format.elements);
        decode_row(type, a, bytes);
        decode_row(type, b, std::span(shifted).subspan(1));
        CHECK(std::memcmp(a.data(), b.data(), a.size() * 4) == 0);
    }
}

TEST_CASE("sizes and names") {
    CHECK(row_bytes(GgmlType::Q6_K, 5120) == 20 * 210);
    CHECK(row_bytes(GgmlType::Q8_0, 1024) == 32 * 34);
    CHECK(row_bytes(GgmlType::BF16, 7) == 14);
    CHECK(row_bytes(GgmlType::Q3_K, 2560) == 10 * 110);
    CHECK(row_bytes(GgmlType::MXFP4, 96) == 3 * 17);
    CHECK(block_format(GgmlType(23)) == stored_format(GgmlType::IQ4_XS));
    CHECK(block_format(GgmlType(9)) == nullptr); // Q8_1, which no file has
    CHECK(stored_format(GgmlType(21))->bytes == 110);
    CHECK(type_name(GgmlType(21)) == "IQ3_S");
    CHECK(type_name(GgmlType(39)) == "MXFP4");
    CHECK(type_name(GgmlType(30)) == "BF16");
    for (const uint32_t id : {4u, 5u, 31u, 33u, 36u, 38u, 43u, 77u, 0xffffffffu}) {
        CHECK(stored_format(GgmlType(id)) == nullptr);
        CHECK(block_format(GgmlType(id)) == nullptr);
        CHECK(type_name(GgmlType(id)) == "type " + std::to_string(id));
    }
}

TEST_CASE("the first block that is not finite is found wherever it is") {
    for (const GgmlType type : weight_formats) {
        CAPTURE(type_name(type));
        const BlockFormat& format = *block_format(type);
        constexpr size_t blocks = 9000;
        auto bytes = random_finite(type, blocks, 5);
        CHECK(!find_nonfinite_block(type, bytes));
        if (type == GgmlType::NVFP4) continue; // all are finite
        for (const size_t at : {blocks - 1, size_t(4097), size_t(4096), size_t(4095), size_t(1), size_t(0)}) {
            for (const bool nan : {true, false}) {
                std::byte* block = bytes.data() + at * format.bytes;
                const auto offsets = half_offsets(type);
                const auto saved = std::vector<std::byte>(block, block + format.bytes);
                if (type == GgmlType::MXFP4) {
                    block[0] = std::byte(nan ? 255 : 254);
                    block[9] = std::byte(0xc0); // a level of -4 * 2^126
                } else if (type == GgmlType::IQ1_M) {
                    set_block_scales(format, block, nan ? 0x7fff : 0xfc00);
                } else if (!offsets.empty()) {
                    put_half(block + offsets.back(), nan ? 0x7fff : 0xfc00);
                } else {
                    std::byte* high = block + format.bytes - 1;
                    high[-1] = std::byte(nan ? 0xff : 0x80); // with the low exponent bit
                    *high = std::byte(0x7f);
                }
                CHECK(find_nonfinite_block(type, bytes) == at);
                std::copy(saved.begin(), saved.end(), block);
            }
        }
        CHECK(!find_nonfinite_block(type, bytes));
        CHECK(!find_nonfinite_block(type, {}));
    }
}

TEST_CASE("a minimum that is not finite is found as well") {
    for (const GgmlType type : {GgmlType::Q4_1, GgmlType::Q5_1, GgmlType::Q2_K, GgmlType::Q4_K, GgmlType::Q5_K}) {
        for (const size_t at : half_offsets(type)) {
            auto bytes = random_finite(type, 10, 6);
            bytes[7 * block_format(type)->bytes + at + 1] = std::byte(0x7e);
            CHECK(find_nonfinite_block(type, bytes) == 7u);
        }
    }
}

TEST_CASE("an MXFP4 scale that overflows is found where it makes a level infinite, and only there") {
    for (int e = 0; e < 256; ++e) {
        for (int level = 0; level < 16; ++level) {
            std::vector<std::byte> bytes(40 * 17, std::byte(0));
            for (const size_t block : {20, 30}) {
                bytes[block * 17] = std::byte(e);
                bytes[block * 17 + 16] = std::byte(level << 4);
            }
            const bool overflows = std::abs(std::ldexp(e2m1[size_t(level)], e - 128)) >= std::ldexp(1, 128);
            const auto want = e == 255 || overflows ? std::optional<uint64_t>(20) : std::nullopt;
            CHECK(find_nonfinite_block(GgmlType::MXFP4, bytes) == want);
        }
    }
}
