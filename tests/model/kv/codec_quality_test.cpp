// The codec's properties beyond its bytes: codes that encode to themselves, the size of its errors, and unbiased inner products
// and lengths if the scale rule promises them.
#include "base/half.h"
#include "model/kv/layouts.h"
#include "model/kv/turboquant.h"
#include "tests/support/codec_golden.h"
#include "tools/check/conformance/vectors/codec_vectors.h"
#include <algorithm>
#include <bit>
#include <cmath>
#include <doctest/doctest.h>
#include <numbers>
#include <random>

using namespace tq;
using namespace tq::test;
using namespace tq::conformance;

namespace {

constexpr uint32_t head_dims[] = {64, 128, 256};
constexpr KvType by_codebook[] = {KvType::tq2, KvType::tq3, KvType::tq4, KvType::tq5, KvType::tq6};

KvCodec wht_codec(KvType type, uint32_t head_dim, ScaleRule rule = ScaleRule::unbiased) {
    return {type, rule, make_rotation(RotationKind::wht, 2, KvSide::key, head_dim)};
}

double dot(std::span<const float> a, std::span<const float> b) {
    double sum = 0;
    for (size_t i = 0; i < a.size(); i++) sum += double(a[i]) * double(b[i]);
    return sum;
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

// A normal variable coded with a codebook at c level units per standard deviation.
struct NormalVariable {
    double square_levels = 0, product = 0; // E L^2, E |z| L

    NormalVariable(std::span<const uint32_t> levels, double c) {
        const auto density = [](double z) { return std::exp(-z * z / 2) / std::sqrt(2 * std::numbers::pi); };
        const auto tail = [](double z) { return std::erfc(z / std::numbers::sqrt2) / 2; };
        for (size_t i = 0; i < levels.size(); i++) {
            const double low = i == 0 ? 0 : (levels[i - 1] + levels[i]) / 2.0 / c,
                         high = i + 1 == levels.size() ? 99 : (levels[i] + levels[i + 1]) / 2.0 / c;
            square_levels += 2.0 * levels[i] * levels[i] * (tail(low) - tail(high));
            product += 2.0 * levels[i] * (density(low) - density(high));
        }
    }
    double distortion(double c) const { return 1 - 2 * product / c + square_levels / c / c; }
};

// Levels of random signs whose squares sum up to about d c^2, like those of a normal vector, with `level` in channel i.
std::vector<float> typical_levels(KvType type, uint32_t d, size_t i, float level, Random& random) {
    const auto& levels = codebook(magnitude_bits(type)).levels;
    const double c = level_units(code_bits(type)), target = d * c * c;
    std::vector<float> y(d);
    for (float& v : y) v = float(levels[random.below(uint32_t(levels.size()))]) * ((random.bits() & 1) != 0 ? -1.0f : 1.0f);
    y[i] = level;
    double sum = dot(y, y);
    for (size_t j = 0; j < 3 * d; j++) {
        float& v = y[j % d];
        if (j % d == i) continue;
        const double rest = sum - double(v) * v;
        const auto off = [&](uint32_t l) { return std::fabs(rest + double(l) * l - target); };
        const uint32_t best = *std::ranges::min_element(levels, {}, off);
        if (off(best) >= std::fabs(sum - target)) continue;
        v = std::copysign(float(best), v);
        sum = rest + double(best) * best;
    }
    return y;
}

std::vector<float> stored_values(const KvCodec& codec, const Stored& stored) {
    std::vector<float> y(codec.head_dim());
    decode_stored(codec, y, stored.codes, stored.scales);
    return y;
}

} // namespace

TEST_CASE("thresholds are the midpoints of the levels, at the scale that makes the error of a normal variable smallest") {
    for (const KvType type : by_codebook) {
        CAPTURE(std::string(name(type)));
        const Codebook& book = codebook(magnitude_bits(type));
        const double c = level_units(code_bits(type));
        double best = c; // E L^2 / E |z| L at itself
        for (int round = 0; round < 20000; round++) {
            const NormalVariable z(book.levels, best);
            best = z.square_levels / z.product;
        }
        // 5 and 6 bits: the error is almost constant over a wide range of c.
        CHECK(std::fabs(c / best - 1) < (code_bits(type) <= 4 ? 1e-8 : 0.02));
        CHECK(NormalVariable(book.levels, c).distortion(c) < NormalVariable(book.levels, best).distortion(best) * 1.002);
        for (size_t i = 0; i + 1 < book.levels.size(); i++) {
            const double t = (book.levels[i] + book.levels[i + 1]) / 2.0 / c;
            CHECK(std::bit_cast<uint32_t>(float(t * t / 128)) == book.thresholds[i]);
        }
        CHECK(std::ranges::is_sorted(book.thresholds));
        CHECK(std::ranges::is_sorted(book.levels));
    }
}

TEST_CASE("TurboQuant: every code word in every channel decodes to its level and is encoded again as itself") {
    Random random{1};
    for (const uint32_t d : head_dims)
        for (const KvType type : by_codebook)
            for (const uint32_t level : codebook(magnitude_bits(type)).levels)
                for (uint32_t i = 0; i < 2 * d; i++) {
                    const ScaleRule rule = ScaleRule(i % 3); // the levels themselves: all three are 1
                    const KvCodec codec = wht_codec(type, d, rule);
                    const std::vector<float> y =
                        typical_levels(type, d, i / 2, i % 2 != 0 ? -float(level) : float(level), random);
                    std::vector<float> x = y;
                    rotate_back(x, codec.rotation); // exact: integers below 2^24, and a power of two
                    const Stored stored = encoded(codec, x);
                    CHECK(stored.scales[0] == 0x3c00);
                    CHECK(stored_values(codec, stored) == y);
                }
}

TEST_CASE("tq8: every code word beside a largest one") {
    Random random{2};
    for (const uint32_t d : head_dims) {
        for (uint32_t word = 0; word < 256; word++) {
            const KvCodec codec = wht_codec(KvType::tq8, d);
            std::vector<float> y(d);
            for (float& v : y) v = float(2 * int(random.below(256)) - 255);
            y[random.below(d)] = float(2 * int(word) - 255);
            y[word % d] = word % 2 != 0 ? 255 : -255;
            std::vector<float> x = y;
            rotate_back(x, codec.rotation);
            const Stored stored = encoded(codec, x);
            CHECK(stored.scales[0] == 0x3c00);
            CHECK(stored_values(codec, stored) == y);
        }
    }
}

TEST_CASE("blocks: every code word in every channel is encoded again as itself, beside the ends of its range") {
    Random random{3};
    for (const KvTypeName& known : kv_types) {
        const KvType type = known.type;
        if (!is_coded(type) || is_turboquant(type)) continue;
        CAPTURE(std::string(known.name));
        const uint32_t d = 128, bits = code_bits(type), words = 1u << bits;
        const KvCodec codec = wht_codec(type, d);
        const auto value = [&](uint32_t word) { return bits == 8 ? float(int8_t(uint8_t(word))) : float(int(word) - 8); };
        const uint32_t end = bits == 8 ? 127 : 0; // q4_0: the scale is an eighth of -8
        for (uint32_t word = 0; word < words; word++)
            for (uint32_t i = 0; i < d; i++) {
                if (bits == 8 && word == 128) continue; // -128 is never stored
                std::vector<float> y(d);
                for (float& v : y) v = value(bits == 8 ? 1 + random.below(127) : random.below(words));
                y[i] = value(word);
                for (uint32_t block = 0; block < d; block += 32) y[block + (i + 1) % 32] = value(end);
                const Stored stored = encoded(codec, y);
                CHECK(stored_values(codec, stored) == y);
                CHECK(std::ranges::all_of(stored.scales, [](uint16_t s) { return s == 0x3c00; }));
            }
    }
}

TEST_CASE("after the haar rotation, which rounds, codes are the same again and scales to one unit") {
    std::mt19937_64 random(4);
    for (const uint32_t d : head_dims)
        for (const KvType type : by_codebook) {
            const KvCodec codec{type, ScaleRule::norm, make_rotation(RotationKind::haar, 2, KvSide::value, d)};
            for (int n = 0; n < 50; n++) {
                const Stored stored = encoded(codec, unit_vector(random, d)), again = encoded(codec, decoded(codec, stored));
                CHECK(again.codes == stored.codes);
                CHECK(std::abs(int(again.scales[0]) - int(stored.scales[0])) <= 1);
            }
        }
}

namespace {

struct Error {
    KvType type;
    double norm, least_squares, unbiased; // for unit vectors of 128 channels
};

struct Measured {
    double error = 0, slope = 0, slope_error = 0; // slope_error: its standard error
    double variance = 0;                          // of <q, x^> - <q, x>
};

// Measured on random unit vectors, and on their inner products with independent ones.
Measured measure(const KvCodec& codec, int vectors) {
    constexpr int queries = 3;
    std::mt19937_64 random(42);
    Measured out;
    double product = 0, square = 0;
    for (int n = 0; n < vectors; n++) {
        const std::vector<float> x = unit_vector(random, codec.head_dim()), x_hat = decoded(codec, encoded(codec, x));
        out.error += (dot(x, x) - 2 * dot(x, x_hat) + dot(x_hat, x_hat)) / vectors;
        for (int q = 0; q < queries; q++) {
            const std::vector<float> query = unit_vector(random, codec.head_dim());
            product += dot(query, x) * dot(query, x_hat);
            square += dot(query, x) * dot(query, x);
            const double miss = dot(query, x_hat) - dot(query, x);
            out.variance += miss * miss / (vectors * queries);
        }
    }
    out.slope = product / square;
    out.slope_error = std::sqrt(out.error / (vectors * queries));
    return out;
}

} // namespace

TEST_CASE("the error of unit vectors by scale rule, beside the published ones, and the slope of inner products") {
    const Error errors[] = {{KvType::tq2, 0.118665, 0.115080, 0.130387},  {KvType::tq3, 0.033787, 0.033493, 0.034693},
                            {KvType::tq4, 0.009172, 0.009150, 0.009239},  {KvType::tq5, 0.002427, 0.002425, 0.002431},
                            {KvType::tq6, 0.000631, 0.000631, 0.000631},  {KvType::tq8, 4.18e-5, 4.18e-5, 4.18e-5},
                            {KvType::tq2t, 0.089714, 0.087683, 0.096200}, {KvType::tq3t, 0.023625, 0.023483, 0.024060},
                            {KvType::tq4t, 0.006198, 0.006188, 0.006228}};
    for (const Error& right : errors)
        for (const ScaleRule rule : {ScaleRule::norm, ScaleRule::least_squares, ScaleRule::unbiased}) {
            const Measured m = measure(wht_codec(right.type, 128, rule), 1500);
            CAPTURE(std::string(name(right.type)));
            CAPTURE(std::string(name(rule)));
            MESSAGE(std::string(name(right.type)), " ", std::string(name(rule)), ": error ", m.error, ", slope ", m.slope);
            const double error = rule == ScaleRule::norm       ? right.norm
                                 : rule == ScaleRule::unbiased ? right.unbiased
                                                               : right.least_squares;
            CHECK(std::fabs(m.error / error - 1) < 0.01);
            // The best approximation shrinks by its error, a length-preserving one by half of that, the unbiased one not.
            const double slope = rule == ScaleRule::unbiased ? 1
                                 : rule == ScaleRule::norm   ? 1 - right.norm / 2
                                                             : 1 - right.least_squares;
            CHECK(std::fabs(m.slope - slope) < 4 * m.slope_error);
            CHECK(std::fabs(m.variance * 128 / error - 1) < 0.1); // the error has no preferred direction
        }
    const std::pair<KvType, double> published[] = {// of a length that is kept: the paper's, then the sources' own figures
                                                   {KvType::tq2, 0.117},
                                                   {KvType::tq3, 0.034},
                                                   {KvType::tq4, 0.009},
                                                   {KvType::tq3, 0.034144},
                                                   {KvType::tq4, 0.009253}};
    for (const auto& [type, error] : published) {
        const Measured m = measure(wht_codec(type, 128, ScaleRule::norm), 1500);
        CHECK(std::fabs(m.error / error - 1) < 0.03);
    }
}

TEST_CASE("the other head_dims and the haar rotation have about the same errors") {
    for (const uint32_t d : head_dims)
        for (const auto& [type, error] :
             {std::pair(KvType::tq4, 0.0092), std::pair(KvType::tq3, 0.0345), std::pair(KvType::tq4t, 0.0062),
              std::pair(KvType::tq3t, 0.0240), std::pair(KvType::tq2t, 0.0960)})
            for (const RotationKind kind : {RotationKind::wht, RotationKind::haar}) {
                const Measured m = measure({type, ScaleRule::unbiased, make_rotation(kind, 1, KvSide::key, d)}, 400);
                CHECK(std::fabs(m.error / error - 1) < 0.04);
                CHECK(std::fabs(m.slope - 1) < 4 * m.slope_error);
            }
}

TEST_CASE("for every vector, however odd: unbiased <x, x^> = |x|^2, norm |x^| = |x|, least squares <x - x^, x^> = 0") {
    for (const uint32_t d : head_dims) {
        const std::vector<float> all = codec_vectors(10 * codec_vector_kinds, d, rotation_signs(6, KvSide::value), 9);
        uint32_t checked = 0;
        for (const KvCodec& codec : all_codecs(d, 6, KvSide::value))
            for (size_t at = 0; is_turboquant(codec.type) && at < all.size(); at += d) {
                const auto x = std::span(all).subspan(at, d);
                const Stored stored = encoded(codec, x);
                const auto is_rounded = [](uint16_t scale) { return scale < 0x400 || scale >= 0x7bff; }; // or not finite
                if (std::ranges::any_of(stored.scales, is_rounded)) continue;
                const std::vector<float> x_hat = decoded(codec, stored);
                const double exact = codec.scale_rule == ScaleRule::norm       ? std::sqrt(dot(x_hat, x_hat) / dot(x, x))
                                     : codec.scale_rule == ScaleRule::unbiased ? dot(x, x_hat) / dot(x, x)
                                                                               : dot(x_hat, x_hat) / dot(x, x_hat);
                CAPTURE(describe(codec));
                CHECK(std::fabs(exact - 1) < 0x1p-11 + 1e-5);
                checked++;
            }
        CHECK(checked > 2000);
    }
}
