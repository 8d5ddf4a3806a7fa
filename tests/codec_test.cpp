// The codec as a codec: against a second implementation written from turboquant.md alone, and by what it promises: which codes,
// which scale, how large an error, the same bytes everywhere.
#include "model/kv/turboquant.h"
#include "shaders/tables.h"
#include "tests/codec_vectors.h"
#include <algorithm>
#include <bit>
#include <cmath>
#include <doctest/doctest.h>
#include <limits>
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
    for (float& v : x) v *= half_value(stored.scale);
    rotate_back(x, signs);
    return x;
}

double dot(std::span<const float> a, std::span<const float> b) {
    double sum = 0;
    for (size_t i = 0; i < a.size(); i++) sum += double(a[i]) * double(b[i]);
    return sum;
}

// ---- turboquant.md, implemented a second time and differently: bytes, recursion, frexp and 64-bit division

struct DocumentCodebook {
    std::vector<uint32_t> levels, thresholds;
};

const DocumentCodebook& document_codebook(KvType type) {
    static const DocumentCodebook tq4{{5, 15, 25, 36, 48, 62, 79, 104},
                                      {0x3a0cc453, 0x3b0cc453, 0x3ba3af7d, 0x3c1b320c, 0x3c851196, 0x3cdaa3bb, 0x3d38256c}};
    static const DocumentCodebook tq3{{13, 40, 71, 114}, {0x3b0046d5, 0x3c0ca9e7, 0x3cc35dc1}};
    static const DocumentCodebook tq2{{30, 100}, {0x3bf6bada}};
    return type == KvType::tq4 ? tq4 : type == KvType::tq3 ? tq3 : tq2;
}

void document_hadamard(std::span<float> y) { // the last butterfly joins the transforms of the halves
    const size_t half = y.size() / 2;
    if (half == 0) return;
    document_hadamard(y.first(half));
    document_hadamard(y.last(half));
    for (size_t i = 0; i < half; i++) {
        const float u = y[i], w = y[half + i];
        y[i] = u + w;
        y[half + i] = u - w;
    }
}

float document_sum(const std::vector<float>& a, size_t first = 0, size_t step = 1) { // halves added last are even and odd
    if (step == a.size()) return a[first];
    return document_sum(a, first, 2 * step) + document_sum(a, first + step, 2 * step);
}

// Nearest multiple of fp16's spacing to n / d * 2^e: by a quotient of 60 bits whose last bit also says whether more followed.
uint16_t document_quotient(float n, float d, int e) {
    int n_exponent, d_exponent;
    const auto n_mantissa = uint64_t(std::frexp(n, &n_exponent) * 0x1p24f),
               d_mantissa = uint64_t(std::frexp(d, &d_exponent) * 0x1p24f);
    uint64_t q = (n_mantissa << 36) / d_mantissa;
    q |= (n_mantissa << 36) % d_mantissa != 0 ? 1 : 0;
    e += n_exponent - d_exponent - 36; // the value is q * 2^e
    const int bits = 64 - std::countl_zero(q);
    const int spacing = std::max(e + bits - 11, -24), shift = spacing - e; // at least 25: q has 36 bits or more
    if (e + bits > 17) return 0x7bff;
    if (shift > 62) return 0;
    uint64_t kept = q >> shift;
    const uint64_t rest = q & ((uint64_t(1) << shift) - 1), half = uint64_t(1) << (shift - 1);
    if (rest > half || (rest == half && kept % 2 == 1)) kept++;
    const double value = std::ldexp(double(kept), spacing);
    if (value >= 65520) return 0x7bff;
    if (value < 0x1p-14) return uint16_t(value * 0x1p24);
    int exponent;
    const double fraction = std::frexp(value, &exponent);
    return uint16_t(((exponent + 14) << 10) + int(fraction * 2048) - 1024);
}

// Puts `count` bits of value at bit `at` of a little-endian stream.
void put_bits(std::vector<uint8_t>& bytes, size_t at, uint32_t count, uint32_t value) {
    for (uint32_t i = 0; i < count; i++) bytes[(at + i) / 8] |= uint8_t((value >> i & 1) << ((at + i) % 8));
}

std::vector<uint8_t> document_pack(KvType type, const std::vector<uint32_t>& index, const std::vector<bool>& negative) {
    const size_t d = index.size();
    const uint32_t b = bits(type);
    std::vector<uint8_t> bytes(d * b / 8);
    for (size_t i = 0; i < d; i++) {
        put_bits(bytes, b == 4 ? 4 * i : (b - 1) * i, b - 1, index[i]);
        put_bits(bytes, b == 4 ? 4 * i + 3 : (b - 1) * d + i, 1, negative[i]);
    }
    return bytes;
}

struct DocumentStored {
    std::vector<uint8_t> bytes;
    uint16_t scale;
};

DocumentStored document_encode(KvType type, std::span<const float> x, const Signs& signs) {
    const size_t d = x.size();
    const DocumentCodebook& book = document_codebook(type);
    std::vector<uint32_t> index(d);
    std::vector<bool> negative(d);
    float largest = 0;
    for (const float v : x) {
        if (!std::isfinite(v)) return {document_pack(type, index, negative), 0x7e00};
        largest = std::max(largest, std::fabs(v));
    }
    if (largest < 0x1p-25f) return {document_pack(type, index, negative), 0};

    const int e = std::ilogb(largest);
    std::vector<float> y(d), terms(d);
    for (size_t i = 0; i < d; i++) {
        const double scaled = std::ldexp(double(x[i]), -e);
        y[i] = std::fabs(scaled) < 0x1p-39 ? 0.0f : float((signs[i / 32] >> (i % 32) & 1) != 0 ? -scaled : scaled);
    }
    document_hadamard(y);
    for (size_t i = 0; i < d; i++) terms[i] = y[i] * y[i];
    const float norm2 = document_sum(terms);
    for (size_t i = 0; i < d; i++) {
        for (const uint32_t threshold : book.thresholds) {
            const float limit = std::bit_cast<float>(threshold) * (128 / float(d)) * norm2;
            if (terms[i] >= limit) index[i]++;
        }
        negative[i] = y[i] < 0;
    }
    for (size_t i = 0; i < d; i++) terms[i] = std::fabs(y[i]) * float(book.levels[index[i]]);
    return {document_pack(type, index, negative), document_quotient(norm2, document_sum(terms), e)};
}

bool same(const Stored& stored, const DocumentStored& document) {
    for (size_t i = 0; i < document.bytes.size(); i++)
        if (uint8_t(stored.codes[i / 4] >> (8 * (i % 4))) != document.bytes[i]) return false;
    return document.bytes.size() == stored.codes.size() * 4 && stored.scale == document.scale;
}

// ----

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

std::vector<float> unit_vector(std::mt19937_64& random, uint32_t head_dim) {
    std::normal_distribution<double> normal;
    std::vector<double> x(head_dim);
    double norm2 = 0;
    for (double& v : x) {
        v = normal(random);
        norm2 += v * v;
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
    CHECK(rotation_signs(0, KvSide::key) == Signs{});
    CHECK(rotation_signs(0, KvSide::value) == Signs{});
    CHECK(rotation_signs(1, KvSide::key) == Signs{});
    CHECK(rotation_signs(35, KvSide::value) == Signs{});

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
    const auto density = [](double z) { return std::exp(-z * z / 2) / std::sqrt(2 * M_PI); };
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
        CHECK(c == doctest::Approx(level_units[t]).epsilon(1e-7));
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

TEST_CASE("the bytes never change: no compiler, option or machine makes others") { CHECK(hash_of_codes(50) == 0); }

TEST_CASE("the example of turboquant.md") {
    const Signs signs = rotation_signs(0, KvSide::key);
    std::vector<float> x(64);
    for (size_t i = 0; i < 64; i++) x[i] = float(i + 1);
    CHECK(encoded(KvType::tq4, x, signs) == Stored{{}, 0});
    CHECK(encoded(KvType::tq3, x, signs) == Stored{{}, 0});
    CHECK(encoded(KvType::tq2, x, signs) == Stored{{}, 0});
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
    const double errors[3][3] = {{0.0091, 0.0343, 0.1270}, {0.00924, 0.0347, 0.1305}, {0.0095, 0.0355, 0.132}};
    std::mt19937_64 random(42);
    for (int k = 0; k < 3; k++)
        for (int t = 0; t < 3; t++) {
            const uint32_t d = head_dims[k];
            const KvType type = turboquant_types[t];
            const Signs signs = rotation_signs(5, KvSide::key);
            double error = 0, product = 0, square = 0;
            constexpr int vectors = 4000, queries = 8;
            for (int n = 0; n < vectors; n++) {
                const std::vector<float> x = unit_vector(random, d), x_hat = decoded(type, encoded(type, x, signs), d, signs);
                error += dot(x, x) - 2 * dot(x, x_hat) + dot(x_hat, x_hat);
                for (int q = 0; q < queries; q++) {
                    const std::vector<float> query = unit_vector(random, d);
                    product += dot(query, x) * dot(query, x_hat);
                    square += dot(query, x) * dot(query, x);
                }
            }
            error /= vectors;
            MESSAGE(name(type), ", head_dim ", d, ": error ", error, ", slope ", product / square);
            CHECK(error == doctest::Approx(errors[k][t]).epsilon(0.01));
            CHECK(std::fabs(product / square - 1) < 4 * std::sqrt(error / (vectors * queries)));
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
    CHECK(std::isnan(half_value(nonfinite_scale)));
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
            CHECK(std::bit_cast<uint32_t>(from_f16[i]) == std::bit_cast<uint32_t>(half_value(half_bits(x[i]))));
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
