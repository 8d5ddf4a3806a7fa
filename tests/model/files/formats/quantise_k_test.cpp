// Encoders that quantise_test does not cover: blocks of 32 as ggml's reference quantisers define them, in plain arithmetic, and
// K formats, whose errors are compared with the errors of scales that nobody searched for.
#include "base/checksum.h"
#include "base/half.h"
#include "model/files/formats/quantise.h"
#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <doctest/doctest.h>
#include <random>

using namespace tq;

namespace {

constexpr std::array k_types{GgmlType::Q2_K, GgmlType::Q3_K, GgmlType::Q4_K, GgmlType::Q5_K, GgmlType::Q6_K};

// The values that a code can have; weights are `levels` values with the same distances.
struct Levels {
    size_t sub_block;
    int count;
    bool with_minimum; // else they are around 0
};
Levels levels_of(GgmlType type) {
    switch (type) {
    case GgmlType::Q2_K: return {16, 4, true};
    case GgmlType::Q3_K: return {16, 8, false};
    case GgmlType::Q4_K: return {32, 16, true};
    case GgmlType::Q5_K: return {32, 32, true};
    default: return {16, 64, false};
    }
}

float as_half(float v) { return half_to_float(float_to_half(v)); }

// The values that a row has after encoding.
std::vector<float> coded(GgmlType type, std::span<const float> x, std::span<const float> importance = {}) {
    std::vector<std::byte> row(row_bytes(type, x.size()));
    quantise_row(type, row, x, importance);
    std::vector<float> y(x.size());
    decode_row(type, y, row);
    return y;
}

double squares(std::span<const float> x, std::span<const float> y, std::span<const float> weights = {}) {
    double sum = 0;
    for (size_t i = 0; i < x.size(); ++i) sum += std::pow(double(x[i]) - y[i], 2) * (weights.empty() ? 1 : weights[i]);
    return sum;
}

std::vector<float> random_values(size_t count, uint32_t seed, bool heavy_tails) {
    std::mt19937 random(seed);
    std::normal_distribution<float> normal;
    std::vector<float> x(count);
    for (float& v : x) v = (heavy_tails ? std::pow(normal(random), 3.0f) : normal(random)) * 0.02f;
    return x;
}

// A block of 32 with levels from 0 to `top`, or around 0 from -half.
std::vector<float> plain(std::span<const float> x, int top, bool with_minimum) {
    const auto [least, greatest] = std::ranges::minmax(x);
    const float extreme = -least > greatest ? least : greatest, half = float((top + 1) / 2);
    const float d = with_minimum ? (greatest - least) / float(top) : extreme / -half, id = d != 0 ? 1 / d : 0;
    std::vector<float> y;
    for (const float v : x) {
        const float from_0 = with_minimum ? (v - least) * id + 0.5f : v * id + (half + 0.5f);
        const auto code = float(std::min(top, int(std::trunc(from_0))));
        y.push_back(with_minimum ? as_half(d) * code + as_half(least) : as_half(d) * (code - half));
    }
    return y;
}

// Quantises as a K format would without a search: scales that span the elements, in steps as fine as one likes.
std::vector<float> plain_k(GgmlType type, std::span<const float> x) {
    std::vector<float> y;
    const auto [sub_block, count, with_minimum] = levels_of(type);
    for (size_t at = 0; at < x.size(); at += sub_block) {
        const std::span part = x.subspan(at, sub_block);
        float least = 0, greatest = 0;
        for (const float v : part) least = std::min(least, v), greatest = std::max(greatest, v);
        const float extreme = std::max(-least, greatest);
        const float step = with_minimum ? (greatest - least) / float(count - 1) : extreme / float(count / 2 - 1);
        const float offset = with_minimum ? least : 0;
        for (const float v : part) y.push_back(step > 0 ? std::round((v - offset) / step) * step + offset : v);
    }
    return y;
}

} // namespace

TEST_CASE("Q4_1, Q5_0 and Q5_1 are ggml's reference quantisers") {
    for (const bool heavy_tails : {false, true}) {
        const std::vector<float> all = random_values(32 * 500, 3, heavy_tails);
        for (size_t at = 0; at < all.size(); at += 32) {
            const std::span x = std::span(all).subspan(at, 32);
            CHECK(coded(GgmlType::Q4_1, x) == plain(x, 15, true));
            CHECK(coded(GgmlType::Q5_0, x) == plain(x, 31, false));
            CHECK(coded(GgmlType::Q5_1, x) == plain(x, 31, true));
        }
    }
}

TEST_CASE("F16 and BF16 are rounded to nearest, ties to even") {
    const std::array<float, 6> x{1 + 0x1p-11f, 1 + 0x3p-11f, 1 + 0x1p-8f, 1 + 0x3p-8f, -0x1p-130f, 3.0e38f};
    CHECK(coded(GgmlType::F16, std::span(x).first(2)) == std::vector<float>{1, 1 + 0x1p-9f});
    CHECK(coded(GgmlType::BF16, std::span(x).subspan(2, 2)) == std::vector<float>{1, 1 + 0x1p-6f});
    CHECK(coded(GgmlType::BF16, std::span(x).subspan(4, 1)) == std::vector<float>{-0x1p-130f});
    CHECK(coded(GgmlType::F32, x) == std::vector<float>(x.begin(), x.end()));
    std::array<std::byte, 2> bytes;
    quantise_row(GgmlType::F16, bytes, std::array{70000.0f});
    CHECK(find_nonfinite_block(GgmlType::F16, bytes) == 0);
    quantise_row(GgmlType::BF16, bytes, std::array{std::nanf("")});
    CHECK(find_nonfinite_block(GgmlType::BF16, bytes) == 0);
}

TEST_CASE("a search for scales has less error than scales that span the elements") {
    for (const GgmlType type : k_types) {
        for (const bool heavy_tails : {false, true}) {
            CAPTURE(type_name(type));
            CAPTURE(heavy_tails);
            const std::vector<float> x = random_values(256 * 64, 5, heavy_tails);
            const double searched = squares(x, coded(type, x)), spanned = squares(x, plain_k(type, x));
            CHECK(searched < 0.97 * spanned);
            CHECK(searched > 0.3 * spanned);
        }
    }
}

// Root mean squares as shares of that of the weights, as measured; the tolerance is for another search, not for other rounding.
TEST_CASE("errors of K formats") {
    struct Bounds {
        GgmlType type;
        double normal, heavy_tails;
    };
    for (const auto& [type, normal, heavy_tails] : {Bounds{GgmlType::Q2_K, 0.2657, 0.2470}, {GgmlType::Q3_K, 0.1455, 0.1481}})
        for (const bool heavy : {false, true}) {
            CAPTURE(type_name(type));
            const std::vector<float> x = random_values(256 * 256, 11, heavy), zeros(x.size());
            const double error = std::sqrt(squares(x, coded(type, x)) / squares(x, zeros)), bound = heavy ? heavy_tails : normal;
            CHECK(error < 1.01 * bound);
            CHECK(error > 0.97 * bound);
        }
}

TEST_CASE("blocks of Q2_K and Q3_K whose bytes follow from the format") {
    const auto bytes = [](GgmlType type, const std::vector<float>& x) {
        std::vector<std::byte> row(row_bytes(type, x.size()));
        quantise_row(type, row, x);
        return row;
    };
    // 16 bytes: scale 15 and minimum 15 of each sub-block, in units of 1/15 and 2/15; then all codes, 0 to 3; then the units
    std::vector<float> x(256);
    for (size_t i = 0; i < x.size(); ++i) x[i] = float(i % 4) - 2;
    std::vector<std::byte> q2 = bytes(GgmlType::Q2_K, x);
    for (size_t i = 0; i < 16; ++i) CHECK(q2[i] == std::byte(0xff));
    for (size_t i = 0; i < 64; ++i) CHECK(q2[16 + i] == std::byte(0x55 * (i % 4)));
    const std::array units{float_to_half(1.0f / 15), float_to_half(2.0f / 15)};
    CHECK(std::memcmp(&q2[80], units.data(), 4) == 0);
    // A constant: no scale, only a minimum, or a scale and the code 3.
    for (const float constant : {-3.0f, 3.0f, 0x1p-14f, -0x1p-14f, 1000.0f})
        for (const GgmlType type : {GgmlType::Q2_K, GgmlType::Q3_K})
            for (const float v : coded(type, std::vector<float>(256, constant)))
                CHECK(v == doctest::Approx(constant).epsilon(0.0025));
    // third bits, bit pairs, 6-bit scales of -32 (0 as stored) or of 31, d
    for (size_t i = 0; i < x.size(); ++i) x[i] = float(i % 8) - 4;
    const std::vector<std::byte> q3 = bytes(GgmlType::Q3_K, x);
    for (size_t i = 0; i < 32; ++i) CHECK(q3[i] == std::byte(i % 8 >= 4 ? 0xff : 0));
    for (size_t i = 0; i < 64; ++i) CHECK(q3[32 + i] == std::byte(0x55 * (i % 4)));
    for (size_t i = 0; i < 12; ++i) CHECK(q3[96 + i] == std::byte(0));
    const uint16_t d = float_to_half(1.0f / -32);
    CHECK(std::memcmp(&q3[108], &d, 2) == 0);
}

TEST_CASE("the bytes are the same on every machine") {
    std::mt19937 random(1);
    std::vector<float> x(256 * 64);
    for (float& v : x) {
        const auto whole = float(random() % 4096), scale = float(random() % 64);
        v = (whole - 2048) * (scale + 1) * 0x1p-20f;
    }
    for (const auto& [type, sum] : {std::pair(GgmlType::Q4_K, uint64_t(0x2f0e6081718174b7)),
                                    {GgmlType::Q2_K, 0xaa254723c20cbdac},
                                    {GgmlType::Q3_K, 0x1113e86b17040e2a},
                                    {GgmlType::Q5_K, 0xa38c72b1c30ea794},
                                    {GgmlType::Q6_K, 0xcc96189c4d88bb8a}}) {
        CAPTURE(type_name(type));
        std::vector<std::byte> row(row_bytes(type, x.size()));
        quantise_row(type, row, x);
        CHECK(checksum(row) == sum);
    }
}

TEST_CASE("values that a block can hold are kept, of any sign and size") {
    for (const GgmlType type : k_types) {
        CAPTURE(type_name(type));
        const std::vector<float> zeros(256, 0.0f);
        for (const float tiny : {0.0f, 1e-38f, -1e-38f, 1e-42f, -1e-42f})
            CHECK(coded(type, std::vector<float>(256, tiny)) == zeros);
        for (const float unit : {0x1p-4f, 1.0f, 0x1p10f}) {
            std::vector<float> x;
            const int count = std::min(16, levels_of(type).count);
            for (int i = 0; i < 256; ++i) x.push_back(unit * float(i * 7 % count - count / 2));
            CHECK(std::sqrt(squares(x, coded(type, x)) / squares(x, zeros)) < 0.002);
        }
        std::vector<float> one(256);
        one[37] = -3;
        CHECK(std::fabs(coded(type, one)[37] + 3) < 0.05f);
    }
}

TEST_CASE("importances count by their ratios, however large or small they are") {
    const std::vector<float> x = random_values(512, 7, false);
    std::vector<float> importance(x.size());
    for (size_t i = 0; i < x.size(); ++i) importance[i] = float(1 + i % 7);
    for (const GgmlType type : k_types)
        for (const int exponent : {-120, -60, 60, 124}) {
            CAPTURE(type_name(type));
            CAPTURE(exponent);
            std::vector<float> scaled = importance;
            for (float& v : scaled) v = std::ldexp(v, exponent);
            CHECK(coded(type, x, scaled) == coded(type, x, importance));
        }
}

TEST_CASE("errors of important columns are smaller") {
    const std::vector<float> x = random_values(256 * 16, 9, false);
    std::vector<float> importance(x.size());
    for (size_t i = 0; i < x.size(); ++i) importance[i] = i % 8 == 3 ? 100 : 1;
    for (const GgmlType type : k_types) {
        CAPTURE(type_name(type));
        CHECK(squares(x, coded(type, x, importance), importance) < 0.9 * squares(x, coded(type, x), importance));
        const std::vector<float> nothing(x.size(), 0.0f); // an expert that no token chose
        CHECK(coded(type, x, nothing) == coded(type, x));
    }
}

TEST_CASE("NaN, infinite and huge values are reported") {
    std::vector<GgmlType> types(k_types.begin(), k_types.end());
    types.insert(types.end(), {GgmlType::Q4_1, GgmlType::Q5_0, GgmlType::Q5_1});
    for (const GgmlType type : types) {
        CAPTURE(type_name(type));
        for (const float bad : {INFINITY, -INFINITY, std::nanf(""), 1e9f, -3e38f}) {
            CAPTURE(bad);
            std::vector<float> x(512, 1.0f);
            x[300] = bad;
            std::vector<std::byte> row(row_bytes(type, x.size()));
            quantise_row(type, row, x);
            CHECK(find_nonfinite_block(type, row) == 300 / block_format(type)->elements);
        }
    }
}
