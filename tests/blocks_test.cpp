// Block formats against decoders written from the closed formulas, one element at a time in double, and halves exhaustively.
#include "base/half.h"
#include "model/formats/blocks.h"
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

constexpr std::array all_types{GgmlType::F32,  GgmlType::F16,  GgmlType::BF16, GgmlType::Q8_0,
                               GgmlType::Q4_0, GgmlType::Q4_K, GgmlType::Q5_K, GgmlType::Q6_K};

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

float with_min(Block x, Block scales, int j, int q) {
    const auto [sc, mn] = scale_min(scales, j);
    // Both products are exact in double and in float; the subtraction rounds once, to float.
    return float(half_at(x) * sc * q - half_at(x + 2) * mn);
}

// Element i of the block at x.
float expected(GgmlType type, Block x, int i) {
    const int n = i / 128, r = i % 128, l = i % 32, j = i / 32, g = r / 32;
    switch (type) {
    case GgmlType::F32: {
        float f;
        std::memcpy(&f, x, 4);
        return f;
    }
    case GgmlType::F16: return float(half_at(x));
    case GgmlType::BF16: return std::bit_cast<float>(uint32_t(x[0]) << 16 | uint32_t(x[1]) << 24);
    case GgmlType::Q8_0: return float(half_at(x) * (x[2 + i] < 128 ? x[2 + i] : x[2 + i] - 256));
    case GgmlType::Q4_0: return float(half_at(x) * ((i < 16 ? lo(x[2 + i]) : hi(x[2 + i - 16])) - 8));
    case GgmlType::Q4_K: return with_min(x, x + 4, j, (x[16 + 32 * (i / 64) + l] >> 4 * (j & 1)) & 15);
    case GgmlType::Q5_K: {
        const int nibble = (x[48 + 32 * (i / 64) + l] >> 4 * (j & 1)) & 15;
        return with_min(x, x + 4, j, nibble + 16 * (x[16 + l] >> j & 1));
    }
    case GgmlType::Q6_K: {
        const int low = (x[64 * n + 32 * (g & 1) + l] >> 4 * (g >> 1)) & 15, high = (x[128 + 32 * n + l] >> 2 * g) & 3;
        const int scale = x[192 + i / 16] < 128 ? x[192 + i / 16] : x[192 + i / 16] - 256;
        return float(half_at(x + 208) * scale * ((low | high << 4) - 32));
    }
    }
    return 0;
}

bool same_bits(float a, float b) {
    return (std::isnan(a) && std::isnan(b)) || std::bit_cast<uint32_t>(a) == std::bit_cast<uint32_t>(b);
}

// Byte offsets of the halves in a block.
std::vector<size_t> half_offsets(GgmlType type) {
    if (type == GgmlType::Q4_K || type == GgmlType::Q5_K) return {0, 2};
    if (type == GgmlType::Q6_K) return {208};
    return {0};
}

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
        if (type == GgmlType::F32) {
            block[3] &= std::byte(0xbf);
        } else if (type == GgmlType::BF16) {
            block[1] &= std::byte(0xbf);
        } else {
            for (const size_t at : half_offsets(type)) block[at + 1] &= std::byte(0xbf);
        }
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
    for (const GgmlType type : all_types) {
        CAPTURE(type_name(type));
        const size_t blocks = block_format(type)->elements == 256 ? 500 : 3000;
        check_decode(type, random_finite(type, blocks, 1));
    }
}

TEST_CASE("blocks with any scale decode, infinite and NaN ones too") {
    for (const GgmlType type : {GgmlType::Q8_0, GgmlType::Q4_0, GgmlType::Q6_K, GgmlType::F16, GgmlType::BF16, GgmlType::F32}) {
        CAPTURE(type_name(type));
        check_decode(type, random_bytes(size_t(2000) * block_format(type)->bytes, 2));
    }
}

TEST_CASE("every byte of a block matters") {
    for (const GgmlType type : all_types) {
        CAPTURE(type_name(type));
        const BlockFormat& format = *block_format(type);
        auto block = random_finite(type, 1, 3);
        for (const size_t at : half_offsets(type)) {
            if (format.elements > 1) block[at + 1] = std::byte(0x3c);
        }
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
    for (const GgmlType type : all_types) {
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
    CHECK(block_format(GgmlType(23)) == nullptr);
    CHECK(stored_format(GgmlType(23))->bytes == 136);
    CHECK(type_name(GgmlType(23)) == "IQ4_XS");
    CHECK(type_name(GgmlType(39)) == "MXFP4");
    CHECK(type_name(GgmlType(30)) == "BF16");
    for (const uint32_t id : {4u, 5u, 31u, 33u, 36u, 38u, 43u, 77u, 0xffffffffu}) {
        CHECK(stored_format(GgmlType(id)) == nullptr);
        CHECK(block_format(GgmlType(id)) == nullptr);
        CHECK(type_name(GgmlType(id)) == "type " + std::to_string(id));
    }
}

TEST_CASE("the first block that is not finite is found wherever it is") {
    for (const GgmlType type : all_types) {
        CAPTURE(type_name(type));
        const BlockFormat& format = *block_format(type);
        constexpr size_t blocks = 9000;
        auto bytes = random_finite(type, blocks, 5);
        CHECK(!find_nonfinite_block(type, bytes));
        for (const size_t at : {blocks - 1, size_t(4097), size_t(4096), size_t(4095), size_t(1), size_t(0)}) {
            for (const bool nan : {true, false}) {
                std::byte* block = bytes.data() + at * format.bytes;
                const auto offsets = half_offsets(type);
                std::byte* high = block + (format.elements == 1 ? format.bytes - 1 : offsets.back() + 1);
                const auto saved = std::vector<std::byte>(block, block + format.bytes);
                std::fill(high - 1, high, nan ? std::byte(0xff) : std::byte(0x80)); // bf16's and f32's low exponent bit
                *high = std::byte(0x7f);
                if (type != GgmlType::F32 && type != GgmlType::BF16 && !nan) {
                    high[-1] = std::byte(0);
                    *high = std::byte(0xfc);
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
    for (const GgmlType type : {GgmlType::Q4_K, GgmlType::Q5_K}) {
        for (const size_t at : half_offsets(type)) {
            auto bytes = random_finite(type, 10, 6);
            bytes[7 * block_format(type)->bytes + at + 1] = std::byte(0x7e);
            CHECK(find_nonfinite_block(type, bytes) == 7u);
        }
    }
}
