// The block quantisers against ggml's formulas in their original form: fp32 division, roundf, conversion to fp16.
#include "base/half.h"
#include "model/kv/blocks_codec.h"
#include "tests/support/rounded.h"
#include "tools/conformance/codec_vectors.h"
#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <doctest/doctest.h>
#include <vector>
#ifdef __SSE__
#include <xmmintrin.h>
#endif

using namespace tq;
using tq::conformance::Random;

namespace {

struct Stored {
    std::vector<uint32_t> codes;
    uint32_t scales;
    bool operator==(const Stored&) const = default;
};

template <class Encode, class... Rest> Stored encoded(Encode encode, std::span<const float> y, Rest... rest) {
    Stored out{std::vector<uint32_t>(y.size()), 0};
    out.scales = encode(out.codes, y, rest...);
    return out;
}

uint32_t saturated_half(float x) {
    const uint32_t half = float_to_half(x);
    return (half & 0x7fff) == 0x7c00 ? (half & 0x8000) | 0x7bff : half;
}

// quantize_row_q8_0_ref and quantize_row_q4_0_ref of ggml-quants.c
Stored ggml_q8_0(std::span<const float> x) {
    float amax = 0;
    for (const float v : x) amax = std::max(amax, std::fabs(v));
    const float d = amax / 127, id = d != 0 ? 1 / d : 0;
    Stored out{{}, saturated_half(d)};
    for (const float v : x) out.codes.push_back(uint8_t(int8_t(test::rounded(v * id))));
    return out;
}

Stored ggml_q4_0(std::span<const float> x) {
    float amax = 0, max = 0;
    for (const float v : x)
        if (amax < std::fabs(v)) {
            amax = std::fabs(v);
            max = v;
        }
    const float d = max / -8, id = d != 0 ? 1 / d : 0;
    Stored out{{}, saturated_half(d)};
    for (const float v : x) out.codes.push_back(uint32_t(std::min(15, int(v * id + 8.5f))));
    return out;
}

// n / d to the nearest fp16 number. The double's error is smaller than its distance to an fp16 midpoint, unless it equals that.
uint32_t half_quotient(float n, uint32_t d) {
    const double exact = double(n) / d, unit = std::ldexp(1.0, n == 0 ? -24 : std::max(std::ilogb(exact), -14) - 10);
    return saturated_half(float(std::nearbyint(exact / unit) * unit));
}

Stored plain_affine(std::span<const float> x, uint32_t bits) {
    const auto [least, greatest] = std::ranges::minmax(x);
    const uint32_t steps = (1u << bits) - 1, scale_bits = half_quotient(greatest - least, steps),
                   zero_bits = least == 0 ? 0 : saturated_half(least);
    const float scale = half_to_float(uint16_t(scale_bits)), zero = half_to_float(uint16_t(zero_bits));
    Stored out{{}, scale_bits | zero_bits << 16};
    for (const float v : x) {
        const float code = scale == 0 ? 0 : (v - zero) * (1 / scale);
        out.codes.push_back(uint32_t(std::clamp(std::floor(double(code) + 0.5), 0.0, double(steps))));
    }
    return out;
}

constexpr std::array<uint32_t, 5> affine_bits{2, 3, 4, 6, 8};
constexpr std::array<uint32_t, 3> groups{32, 64, 128};

// Normal numbers, and other kinds of vectors: few distinct values, spikes, an offset, zeros, tiny elements.
void fill(std::span<float> y, Random& random, uint32_t kind) {
    const float offset = kind % 7 == 3 ? random.normal() * 20 : 0;
    for (float& v : y) {
        v = random.normal() + offset;
        if (kind % 7 == 1) v = float(int(random.below(9)) - 4) / 4;
        if (kind % 7 == 2 && random.below(8) == 0) v *= 100;
        if (kind % 7 == 4 && random.below(2) == 0) v = 0;
        if (kind % 7 == 5) v = std::ldexp(v, -int(random.below(40)));
        if (kind % 7 == 6) v = std::ldexp(float(int(random.below(511)) - 255), -8);
    }
}

std::vector<float> times_power(std::span<const float> y, int e) {
    std::vector<float> x(y.begin(), y.end());
    for (float& v : x) v = std::ldexp(v, e);
    return x;
}

} // namespace

TEST_CASE("q8_0 and q4_0: ggml's bytes") {
    Random random{1};
    std::array<float, ggml_block> y;
    for (uint32_t i = 0; i < 1000000; i++) {
        fill(y, random, i);
        const int e = i % 4 == 0 ? 0 : int(random.below(44)) - 26; // from vanishing to saturating scales
        const std::vector<float> x = times_power(y, e);
        REQUIRE(encoded(encode_q8_0, y, e) == ggml_q8_0(x));
        REQUIRE(encoded(encode_q4_0, y, e) == ggml_q4_0(x));
    }
}

TEST_CASE("affine: the formula's bytes") {
    Random random{2};
    std::array<float, 128> storage;
    for (uint32_t i = 0; i < 150000; i++) {
        const std::span<float> y(storage.data(), groups[i % 3]);
        fill(y, random, i / 3);
        const int e = i % 4 == 0 ? 0 : int(random.below(44)) - 26;
        const std::vector<float> x = times_power(y, e);
        const uint32_t bits = affine_bits[random.below(5)];
        REQUIRE(encoded(encode_affine, y, bits, e) == plain_affine(x, bits));
    }
}

TEST_CASE("zeros of either sign") {
    std::array<float, ggml_block> y;
    for (size_t i = 0; i < y.size(); i++) y[i] = i % 3 == 0 ? -0.0f : 0.0f;
    for (const int e : {-128, 0, 127}) {
        CHECK(encoded(encode_q8_0, y, e) == Stored{std::vector<uint32_t>(32, 0), 0});
        CHECK(encoded(encode_q4_0, y, e) == Stored{std::vector<uint32_t>(32, 8), 0x8000}); // as in ggml: -0, and 8 stands for 0
        for (const uint32_t bits : affine_bits)
            CHECK(encoded(encode_affine, y, bits, e) == Stored{std::vector<uint32_t>(32, 0), 0});
    }
}

TEST_CASE("constants and one-hot blocks") {
    std::array<float, ggml_block> y;
    y.fill(-1.5f);
    CHECK(encoded(encode_q8_0, y, 0) == Stored{std::vector<uint32_t>(32, 0x81), float_to_half(1.5f / 127)});
    CHECK(encoded(encode_q4_0, y, 0) == Stored{std::vector<uint32_t>(32, 0), float_to_half(1.5f / 8)});
    CHECK(encoded(encode_affine, y, 4, 0) == Stored{std::vector<uint32_t>(32, 0), uint32_t(float_to_half(-1.5f)) << 16});
    y.fill(0);
    y[17] = 127;
    Stored right{std::vector<uint32_t>(32, 0), 0x3c00};
    right.codes[17] = 127;
    CHECK(encoded(encode_q8_0, y, 0) == right);
    right = {std::vector<uint32_t>(32, 8), float_to_half(-127 / 8.0f)};
    right.codes[17] = 0;
    CHECK(encoded(encode_q4_0, y, 0) == right);
    right = {std::vector<uint32_t>(32, 0), float_to_half(127 / 3.0f)};
    right.codes[17] = 3;
    CHECK(encoded(encode_affine, y, 2, 0) == right);
}

TEST_CASE("huge and tiny: saturated scales, vanished ones, the ends of the range of exponents") {
    Random random{3};
    std::array<float, ggml_block> y;
    for (int i = 0; i < 1000; i++) {
        fill(y, random, 0);
        y[3] = -6;
        const Stored q8 = encoded(encode_q8_0, y, 127), q4 = encoded(encode_q4_0, y, 127);
        CHECK((q8.scales == 0x7bff && q4.scales == 0x7bff && q8.codes[3] == 0x81 && q4.codes[3] == 0));
        for (const uint32_t bits : affine_bits) {
            const Stored high = encoded(encode_affine, y, bits, 127), low = encoded(encode_affine, y, bits, -40);
            CHECK(high.scales == 0xfbff7bff); // zero is -65504
            for (size_t j = 0; j < y.size(); j++) CHECK(high.codes[j] == (y[j] > 0 ? (1u << bits) - 1 : 0));
            CHECK(low == Stored{std::vector<uint32_t>(32, 0), 0x80000000});
        }
        CHECK(encoded(encode_q8_0, y, -40).scales == 0);
        CHECK(encoded(encode_q8_0, y, -40).codes == encoded(encode_q8_0, y, 0).codes);
        for (float& v : y) v = std::ldexp(v, -65); // the smallest number in a normalised vector
        CHECK(encoded(encode_q8_0, y, 70) == ggml_q8_0(times_power(y, 70)));
        CHECK(encoded(encode_affine, y, 4, 65) == plain_affine(times_power(y, 65), 4));
    }
}

#ifdef __SSE__
TEST_CASE("flushing denormals to zero changes nothing") {
    const auto all = [] {
        Random random{5};
        std::array<float, ggml_block> y;
        std::vector<Stored> out;
        for (int i = 0; i < 3000; i++) {
            fill(y, random, uint32_t(i));
            const int tiny = i % 3 == 0 ? -56 : 0, e = int(random.below(154)) - 26; // elements reach 2^-62
            for (float& v : y) v = std::fabs(v) < 0x1p-6f ? 0 : std::ldexp(v, tiny);
            out.push_back(encoded(encode_q8_0, y, e));
            out.push_back(encoded(encode_q4_0, y, e));
            for (const uint32_t bits : affine_bits) out.push_back(encoded(encode_affine, y, bits, e));
        }
        return out;
    };
    const std::vector<Stored> before = all();
    const uint32_t mode = _mm_getcsr();
    _mm_setcsr(mode | 0x8040); // FTZ and DAZ
    volatile float tiny = 0x1p-126f;
    tiny = tiny * 0.5f;
    const bool flushes = tiny == 0;
    const std::vector<Stored> after = all();
    _mm_setcsr(mode);
    CHECK(flushes);
    CHECK((after == before));
}
#endif

TEST_CASE("ties") {
    std::array<float, ggml_block> y;
    for (uint32_t i = 0; i < y.size(); i++) y[i] = float(i % 2 == 0 ? 1 : -1) * (float(i) + 0.5f);
    y[31] = 127; // a scale of 1
    const Stored q8 = encoded(encode_q8_0, y, 0);
    for (uint32_t i = 0; i < 31; i++) CHECK(int8_t(q8.codes[i]) == (i % 2 == 0 ? 1 : -1) * int(i + 1)); // away from zero
    for (uint32_t i = 0; i < y.size(); i++) y[i] = float(i % 15) - 7.5f;
    y[0] = -8;
    const Stored q4 = encoded(encode_q4_0, y, 0);
    for (uint32_t i = 1; i < y.size(); i++) CHECK(q4.codes[i] == i % 15 + 1); // rounded up
    for (uint32_t i = 0; i < y.size(); i++) y[i] = float(i % 15) + 0.5f;
    y[0] = 0;
    y[1] = 15;
    const Stored affine = encoded(encode_affine, y, 4, 0);
    CHECK(affine.scales == 0x3c00);
    for (uint32_t i = 2; i < y.size(); i++) CHECK(affine.codes[i] == i % 15 + 1); // rounded up
    y.fill(3);
    y[5] = -8;
    y[4] = 8; // the first of the largest magnitude decides the sign
    CHECK(encoded(encode_q4_0, y, 0).scales == 0xbc00);
    std::swap(y[4], y[5]);
    CHECK(encoded(encode_q4_0, y, 0).scales == 0x3c00);
}

TEST_CASE("what comes back: within half a step, and the squared error of normal numbers") {
    Random random{4};
    std::array<float, 128> y;
    const uint32_t length = 32, count = 4000;
    double error[2] = {}, affine_error[affine_bits.size()] = {};
    for (uint32_t i = 0; i < count; i++) {
        fill(y, random, 0);
        const std::span<const float> block(y.data(), length);
        const Stored q8 = encoded(encode_q8_0, block, 0), q4 = encoded(encode_q4_0, block, 0);
        for (uint32_t j = 0; j < length; j++) {
            const double off8 = decode_q8_0(q8.codes[j], half_to_float(uint16_t(q8.scales))) - block[j];
            const double off4 = decode_q4_0(q4.codes[j], half_to_float(uint16_t(q4.scales))) - block[j];
            error[0] += off8 * off8 / length / count;
            error[1] += off4 * off4 / length / count;
        }
        for (size_t b = 0; b < affine_bits.size(); b++) {
            const Stored stored = encoded(encode_affine, block, affine_bits[b], 0);
            const float scale = half_to_float(uint16_t(stored.scales)), zero = half_to_float(uint16_t(stored.scales >> 16));
            for (uint32_t j = 0; j < length; j++) {
                const double off = decode_affine(stored.codes[j], scale, zero) - block[j];
                CHECK(std::fabs(off) < scale * 0.5 + 0.005); // plus the shift of the ends by rounding scale and zero
                affine_error[b] += off * off / length / count;
            }
        }
    }
    MESSAGE("squared error: q8_0 ", error[0], ", q4_0 ", error[1], ", affine 2, 3, 4, 6, 8 bits ", affine_error[0], " ",
            affine_error[1], " ", affine_error[2], " ", affine_error[3], " ", affine_error[4]);
    CHECK(error[0] == doctest::Approx(2.731e-5).epsilon(0.01));
    CHECK(error[1] == doctest::Approx(0.007014).epsilon(0.01));
    constexpr double affine_right[] = {0.1493, 0.02727, 0.005926, 3.352e-4, 2.046e-5};
    for (size_t b = 0; b < affine_bits.size(); b++) CHECK(affine_error[b] == doctest::Approx(affine_right[b]).epsilon(0.01));
}
