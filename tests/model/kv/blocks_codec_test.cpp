// The block quantisers against ggml's formulas in their original form: fp32 division, roundf, conversion to fp16.
#include "base/half.h"
#include "model/kv/blocks_codec.h"
#include "tests/support/rounded.h"
#include "tools/check/conformance/vectors/codec_vectors.h"
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

TEST_CASE("zeros of either sign") {
    std::array<float, ggml_block> y;
    for (size_t i = 0; i < y.size(); i++) y[i] = i % 3 == 0 ? -0.0f : 0.0f;
    for (const int e : {-128, 0, 127}) {
        CHECK(encoded(encode_q8_0, y, e) == Stored{std::vector<uint32_t>(32, 0), 0});
        CHECK(encoded(encode_q4_0, y, e) == Stored{std::vector<uint32_t>(32, 8), 0x8000}); // as in ggml: -0, and 8 stands for 0
    }
}

TEST_CASE("constants and one-hot blocks") {
    std::array<float, ggml_block> y;
    y.fill(-1.5f);
    CHECK(encoded(encode_q8_0, y, 0) == Stored{std::vector<uint32_t>(32, 0x81), float_to_half(1.5f / 127)});
    CHECK(encoded(encode_q4_0, y, 0) == Stored{std::vector<uint32_t>(32, 0), float_to_half(1.5f / 8)});
    y.fill(0);
    y[17] = 127;
    Stored right{std::vector<uint32_t>(32, 0), 0x3c00};
    right.codes[17] = 127;
    CHECK(encoded(encode_q8_0, y, 0) == right);
    right = {std::vector<uint32_t>(32, 8), float_to_half(-127 / 8.0f)};
    right.codes[17] = 0;
    CHECK(encoded(encode_q4_0, y, 0) == right);
}

TEST_CASE("huge and tiny: saturated scales, vanished ones, the ends of the range of exponents") {
    Random random{3};
    std::array<float, ggml_block> y;
    for (int i = 0; i < 1000; i++) {
        fill(y, random, 0);
        y[3] = -6;
        const Stored q8 = encoded(encode_q8_0, y, 127), q4 = encoded(encode_q4_0, y, 127);
        CHECK((q8.scales == 0x7bff && q4.scales == 0x7bff && q8.codes[3] == 0x81 && q4.codes[3] == 0));
        CHECK(encoded(encode_q8_0, y, -40).scales == 0);
        CHECK(encoded(encode_q8_0, y, -40).codes == encoded(encode_q8_0, y, 0).codes);
        for (float& v : y) v = std::ldexp(v, -65); // the smallest number in a normalised vector
        CHECK(encoded(encode_q8_0, y, 70) == ggml_q8_0(times_power(y, 70)));
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
    y.fill(3);
    y[5] = -8;
    y[4] = 8; // the first of the largest magnitude decides the sign
    CHECK(encoded(encode_q4_0, y, 0).scales == 0xbc00);
    std::swap(y[4], y[5]);
    CHECK(encoded(encode_q4_0, y, 0).scales == 0x3c00);
}

TEST_CASE("what comes back: the squared error of normal numbers") {
    Random random{4};
    std::array<float, ggml_block> y;
    const uint32_t length = ggml_block, count = 4000;
    double error[2] = {};
    for (uint32_t i = 0; i < count; i++) {
        fill(y, random, 0);
        const Stored q8 = encoded(encode_q8_0, y, 0), q4 = encoded(encode_q4_0, y, 0);
        for (uint32_t j = 0; j < length; j++) {
            const double off8 = decode_q8_0(q8.codes[j], half_to_float(uint16_t(q8.scales))) - y[j];
            const double off4 = decode_q4_0(q4.codes[j], half_to_float(uint16_t(q4.scales))) - y[j];
            error[0] += off8 * off8 / length / count;
            error[1] += off4 * off4 / length / count;
        }
    }
    MESSAGE("squared error: q8_0 ", error[0], ", q4_0 ", error[1]);
    CHECK(error[0] == doctest::Approx(2.731e-5).epsilon(0.01));
    CHECK(error[1] == doctest::Approx(0.007014).epsilon(0.01));
}
