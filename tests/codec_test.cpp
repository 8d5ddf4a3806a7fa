// The codec as a codec: against a second implementation written from turboquant.md alone, and by what it promises: which codes,
// which scale, how large an error, the same bytes everywhere.
#include "base/half.h"
#include "model/kv/turboquant.h"
#include "tests/codec_vectors.h"
#include "tests/document_codec.h"
#include <algorithm>
#include <bit>
#include <cmath>
#include <doctest/doctest.h>
#include <limits>
#include <numbers>
#include <random>
#include <set>
#ifdef __SSE__
#include <xmmintrin.h>
#endif

using namespace tq;
using namespace tq::test;

namespace {

constexpr KvType turboquant_types[] = {KvType::tq4, KvType::tq3, KvType::tq2};
constexpr uint32_t head_dims[] = {64, 128, 256};

struct Stored {
    std::vector<uint32_t> codes;
    uint16_t scale;
    bool operator==(const Stored&) const = default;
};

Stored encoded(KvType type, std::span<const float> x, const Signs& signs) {
    Stored out{std::vector<uint32_t>(code_words(type, uint32_t(x.size()))), 0};
    out.scale = encode(type, out.codes, x, signs);
    return out;
}

std::vector<float> decoded(KvType type, const Stored& stored, uint32_t head_dim, const Signs& signs) {
    std::vector<float> x(head_dim);
    decode_levels(type, x, stored.codes);
    for (float& v : x) v *= half_to_float(stored.scale);
    rotate_back(x, signs);
    return x;
}

double dot(std::span<const float> a, std::span<const float> b) {
    double sum = 0;
    for (size_t i = 0; i < a.size(); i++) sum += double(a[i]) * double(b[i]);
    return sum;
}

bool same(const Stored& stored, const DocumentStored& document) {
    for (size_t i = 0; i < document.bytes.size(); i++)
        if (uint8_t(stored.codes[i / 4] >> (8 * (i % 4))) != document.bytes[i]) return false;
    return document.bytes.size() == stored.codes.size() * 4 && stored.scale == document.scale;
}

uint64_t fnv1a(uint64_t hash, uint32_t word) {
    for (int i = 0; i < 4; i++) hash = (hash ^ (word >> (8 * i) & 0xff)) * 0x100000001b3;
    return hash;
}

// Of the bytes of `rounds` vectors of every kind, type and head_dim.
uint64_t hash_of_codes(uint32_t rounds) {
    uint64_t hash = 0xcbf29ce484222325;
    for (const uint32_t d : head_dims) {
        const Signs signs = rotation_signs(3, KvSide::value);
        const std::vector<float> x = codec_vectors(rounds * codec_vector_kinds, d, signs, d);
        for (const KvType type : turboquant_types)
            for (size_t at = 0; at < x.size(); at += d) {
                const Stored stored = encoded(type, std::span(x).subspan(at, d), signs);
                for (const uint32_t word : stored.codes) hash = fnv1a(hash, word);
                hash = fnv1a(hash, stored.scale);
            }
    }
    return hash;
}

std::vector<float> unit_vector(std::mt19937_64& random, uint32_t head_dim) { // the same with every standard library
    std::vector<double> x;
    double norm2 = 0;
    while (x.size() < head_dim) {
        const double radius2 = -2 * std::log(double(random() >> 11 | 1) * 0x1p-53), turn = double(random() >> 11) * 0x1p-53;
        x.push_back(std::sqrt(radius2) * std::cos(2 * std::numbers::pi * turn));
        norm2 += x.back() * x.back();
    }
    std::vector<float> out;
    for (const double v : x) out.push_back(float(v / std::sqrt(norm2)));
    return out;
}

} // namespace

TEST_CASE("bytes per vector") {
    const uint32_t expected[][3] = {{256, 512, 1024}, {128, 256, 512}, {34, 66, 130}, {26, 50, 98}, {18, 34, 66}}; // f32 ... tq2
    for (uint32_t t = 0; t < 5; t++)
        for (uint32_t i = 0; i < 3; i++) {
            const auto type = KvType(t);
            CHECK(kv_vector_bytes(type, head_dims[i]) == expected[t][i]);
            CHECK(code_words(type, head_dims[i]) * 4 + (is_turboquant(type) ? 2 : 0) == expected[t][i]);
        }
}

TEST_CASE("rotation signs are these, whoever computes them, and look like coin tosses") {
    CHECK(rotation_signs(0, KvSide::key) ==
          Signs{0x64625032, 0xd9c0799c, 0xaf362e10, 0x7fa88912, 0xc4671b39, 0xf1d2eee4, 0x867a4029, 0xa3772475});
    CHECK(rotation_signs(0, KvSide::value) ==
          Signs{0xee3e862c, 0x88cc3672, 0x2de4afb5, 0x7e785fa2, 0x991e27d9, 0x8051c7f4, 0xb0c40637, 0xef6cfcab});
    CHECK(rotation_signs(1, KvSide::key) ==
          Signs{0xaa9816a0, 0xbca2a091, 0xa60e7ff2, 0x511a119c, 0x5a3ab2d1, 0x39ecfb7c, 0x77ece360, 0xe25f65ce});
    CHECK(rotation_signs(35, KvSide::value) ==
          Signs{0x392fbd08, 0x20bb001a, 0xe06dfc7e, 0xd6736924, 0x83a4c6c7, 0x6e6a165d, 0xed7fc1e5, 0x952557dc});

    std::set<Signs> different;
    std::array<int, 256> negated{};
    for (uint32_t layer = 0; layer < 64; layer++)
        for (const KvSide side : {KvSide::key, KvSide::value}) {
            const Signs signs = rotation_signs(layer, side);
            different.insert(signs);
            int set = 0;
            for (size_t i = 0; i < 256; i++) {
                const int bit = signs[i / 32] >> (i % 32) & 1;
                set += bit;
                negated[i] += bit;
            }
            CHECK(std::abs(set - 128) < 5 * 8);
        }
    CHECK(different.size() == 128);
    for (const int n : negated) CHECK(std::abs(n - 64) < 5 * 6);
}

TEST_CASE("thresholds are the midpoints of the levels, at the scale that makes the error of a normal variable smallest") {
    const auto density = [](double z) { return std::exp(-z * z / 2) / std::sqrt(2 * std::numbers::pi); };
    const auto tail = [](double z) { return std::erfc(z / std::sqrt(2)) / 2; };
    const double level_units[] = {38.14299, 52.94281, 66.20983}; // per standard deviation
    for (int t = 0; t < 3; t++) {
        const DocumentCodebook& book = document_codebook(turboquant_types[t]);
        const auto& levels = book.levels;
        const auto midpoint = [&](size_t i, double c) { return (levels[i] + levels[i + 1]) / 2.0 / c; };
        double c = 50;
        for (int round = 0; round < 500; round++) { // c = E L^2 / E |z| L
            double square = 0, product = 0;
            for (size_t i = 0; i < levels.size(); i++) {
                const double low = i == 0 ? 0 : midpoint(i - 1, c), high = i + 1 == levels.size() ? 99 : midpoint(i, c);
                square += levels[i] * levels[i] * (tail(low) - tail(high));
                product += levels[i] * (density(low) - density(high));
            }
            c = square / product;
        }
        CHECK(std::fabs(c - level_units[t]) < 1e-5);
        for (size_t i = 0; i + 1 < levels.size(); i++)
            CHECK(std::bit_cast<uint32_t>(float(midpoint(i, c) * midpoint(i, c) / 128)) == book.thresholds[i]);
        CHECK(std::ranges::is_sorted(book.thresholds));
    }
}

TEST_CASE("the bytes are those of turboquant.md, for every kind of vector") {
    for (const uint32_t d : head_dims)
        for (const uint32_t layer : {0u, 7u}) {
            const Signs signs = rotation_signs(layer, KvSide::key);
            const std::vector<float> all = codec_vectors(60 * codec_vector_kinds, d, signs, layer + 1);
            for (const KvType type : turboquant_types)
                for (size_t i = 0; i < all.size() / d; i++) {
                    const auto x = std::span(all).subspan(i * d, d);
                    CAPTURE(codec_vector_kind(uint32_t(i % codec_vector_kinds)));
                    CAPTURE(name(type));
                    CAPTURE(d);
                    CHECK(same(encoded(type, x, signs), document_encode(type, x, signs)));
                }
        }
}

TEST_CASE("the bytes never change: no compiler, option or machine makes others") {
    CHECK(hash_of_codes(50) == 865538538249736476u);
}

TEST_CASE("the example of turboquant.md") {
    const Signs signs = rotation_signs(0, KvSide::key);
    std::vector<float> x(64);
    for (size_t i = 0; i < 64; i++) x[i] = float(i + 1);
    CHECK(encoded(KvType::tq4, x, signs) ==
          Stored{{0xc935b4b1, 0x59a82244, 0x160bac0a, 0x339ac28b, 0x11ab7c12, 0xd838bd8d, 0x1e12c381, 0xb8a15982}, 0x47f7});
    CHECK(encoded(KvType::tq3, x, signs) ==
          Stored{{0xc45a8764, 0x51913161, 0x84a205e1, 0x85813190, 0x3b1d70ca, 0xe64adf34}, 0x45d2});
    CHECK(encoded(KvType::tq2, x, signs) == Stored{{0x88548396, 0x88488d0c, 0x3b1d70ca, 0xe64adf34}, 0x4507});
}

#ifdef __SSE__
TEST_CASE("flushing denormals to zero changes nothing") {
    const uint64_t before = hash_of_codes(20);
    const uint32_t mode = _mm_getcsr();
    _mm_setcsr(mode | 0x8040); // FTZ and DAZ
    volatile float tiny = 0x1p-126f;
    tiny = tiny * 0.5f;
    const bool flushes = tiny == 0;
    const uint64_t after = hash_of_codes(20);
    _mm_setcsr(mode);
    CHECK(flushes);
    CHECK(after == before);
}
#endif

TEST_CASE("every code word in every channel decodes to its level and is encoded again as itself") {
    std::mt19937_64 random(1);
    for (const uint32_t d : head_dims) {
        const Signs signs = rotation_signs(2, KvSide::key);
        for (const KvType type : turboquant_types) {
            const auto& levels = document_codebook(type).levels;
            const Stored background = encoded(type, unit_vector(random, d), signs);
            for (uint32_t word = 0; word < levels.size() * 2; word++)
                for (uint32_t i = 0; i < d; i++) {
                    std::vector<float> y(d), again(d);
                    decode_levels(type, y, background.codes);
                    y[i] = float(levels[word / 2]) * (word % 2 != 0 ? -1 : 1);
                    std::vector<float> x = y;
                    rotate_back(x, signs); // exact: integers below 2^24, and a power of two
                    const Stored stored = encoded(type, x, signs);
                    decode_levels(type, again, stored.codes);
                    CHECK(again == y);
                    CHECK(stored.scale == 0x3c00);
                }
        }
    }
}

TEST_CASE("a component on a threshold takes the larger level") {
    Random random{5};
    for (const uint32_t d : head_dims)
        for (const KvType type : turboquant_types) {
            const auto& levels = document_codebook(type).levels;
            const Signs signs = rotation_signs(1, KvSide::value);
            for (uint32_t n = 0; n < 200; n++) {
                const uint32_t index = n % uint32_t(levels.size() - 1);
                std::vector<float> x(d), y(d);
                const uint32_t j = threshold_tie(x, type, index, signs, random);
                decode_levels(type, y, encoded(type, x, signs).codes);
                CHECK(std::fabs(y[j]) == float(levels[index + 1]));
            }
        }
}

TEST_CASE("the error of unit vectors, and inner products that are right on average") {
    const double errors[3][3] = {{0.00895, 0.0337, 0.1279}, {0.00925, 0.0347, 0.1305}, {0.00942, 0.0353, 0.1320}};
    constexpr int vectors = 10000, queries = 3;
    std::mt19937_64 random(42);
    for (int k = 0; k < 3; k++)
        for (int t = 0; t < 3; t++) {
            const uint32_t d = head_dims[k];
            const KvType type = turboquant_types[t];
            const Signs signs = rotation_signs(5, KvSide::key);
            double error = 0, product = 0, square = 0;
            for (int n = 0; n < vectors; n++) {
                const std::vector<float> x = unit_vector(random, d), x_hat = decoded(type, encoded(type, x, signs), d, signs);
                error += (dot(x, x) - 2 * dot(x, x_hat) + dot(x_hat, x_hat)) / vectors;
                for (int q = 0; q < queries; q++) {
                    const std::vector<float> query = unit_vector(random, d);
                    product += dot(query, x) * dot(query, x_hat);
                    square += dot(query, x) * dot(query, x);
                }
            }
            const double slope = product / square;
            MESSAGE(std::string(name(type)), ", head_dim ", d, ": error ", error, ", slope ", slope);
            CHECK(std::fabs(error / errors[k][t] - 1) < 0.01);
            CHECK(std::fabs(slope - 1) < 4 * std::sqrt(error / (vectors * queries)));
        }
}

TEST_CASE("<x, decoded x> = |x|^2: the scale is unbiased for every vector, however odd") {
    for (const uint32_t d : head_dims) {
        const Signs signs = rotation_signs(6, KvSide::value);
        const std::vector<float> all = codec_vectors(20 * codec_vector_kinds, d, signs, 9);
        uint32_t checked = 0;
        for (const KvType type : turboquant_types)
            for (size_t at = 0; at < all.size(); at += d) {
                const auto x = std::span(all).subspan(at, d);
                const Stored stored = encoded(type, x, signs);
                if (stored.scale < 0x400 || stored.scale >= 0x7bff) continue; // subnormal, saturated or not finite
                const double ratio = dot(x, decoded(type, stored, d, signs)) / dot(x, x);
                CHECK(std::fabs(ratio - 1) < 0x1p-11 + 1e-5);
                checked++;
            }
        CHECK(checked > 600);
    }
}

TEST_CASE("zero, not finite and too large vectors") {
    const Signs signs = rotation_signs(0, KvSide::value);
    constexpr float infinity = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
    for (const KvType type : turboquant_types) {
        const Stored zero{std::vector<uint32_t>(code_words(type, 128)), 0}, nonfinite{zero.codes, nonfinite_scale};
        std::vector<float> x(128, -0.0f);
        CHECK(encoded(type, x, signs) == zero);
        x[77] = std::nextafter(0x1p-25f, 0.0f);
        CHECK(encoded(type, x, signs) == zero);
        x[77] = 0x1p-25f;
        CHECK_FALSE(encoded(type, x, signs).codes == zero.codes);
        for (const float bad : {infinity, -infinity, nan, -nan}) {
            x[77] = bad;
            CHECK(encoded(type, x, signs) == nonfinite);
        }
        std::ranges::fill(x, std::numeric_limits<float>::max());
        CHECK(encoded(type, x, signs).scale == 0x7bff);
    }
    CHECK(std::isnan(half_to_float(nonfinite_scale)));
}

TEST_CASE("f32 and f16 caches store the vector itself") {
    const std::vector<float> all = codec_vectors(10 * codec_vector_kinds, 64, {}, 2);
    for (size_t at = 0; at < all.size(); at += 64) {
        const auto x = std::span(all).subspan(at, 64);
        const Stored f32 = encoded(KvType::f32, x, {}), f16 = encoded(KvType::f16, x, {});
        std::vector<float> from_f16(64);
        decode_levels(KvType::f16, from_f16, f16.codes);
        for (size_t i = 0; i < 64; i++) {
            CHECK(f32.codes[i] == std::bit_cast<uint32_t>(x[i]));
            CHECK(std::bit_cast<uint32_t>(from_f16[i]) == std::bit_cast<uint32_t>(half_to_float(float_to_half(x[i]))));
        }
        CHECK((f32.scale == 0x3c00 && f16.scale == 0x3c00));
    }
}

TEST_CASE("rotate_back undoes rotate") {
    for (const uint32_t d : head_dims) {
        const Signs signs = rotation_signs(4, KvSide::key);
        Random random{d};
        for (int n = 0; n < 100; n++) {
            std::vector<float> x(d);
            for (float& v : x) v = float(int(random.below(20001)) - 10000); // integers: exact
            std::vector<float> y = x;
            rotate(y, signs);
            CHECK(dot(y, y) == double(d) * dot(x, x));
            CHECK_FALSE(y == x);
            rotate_back(y, signs);
            CHECK(y == x);
        }
    }
}
