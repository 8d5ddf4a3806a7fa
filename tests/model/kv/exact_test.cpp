// Divisions and square roots in integers, against arithmetic without rounding: the midpoints of neighbours, multiplied exactly
// in double.
#include "base/half.h"
#include "model/kv/exact.h"
#include "tools/check/conformance/vectors/codec_vectors.h"
#include <bit>
#include <cmath>
#include <doctest/doctest.h>

using namespace tq;
using tq::conformance::Random;

namespace {

// The value of positive fp16 bits; 65536 stands for the number after the largest.
double exact_value(uint32_t half) { return half == 0x7c00 ? 65536 : double(half_to_float(uint16_t(half))); }

// The midpoint of `half` and the next number: 12 bits.
double midpoint(uint32_t half) { return (exact_value(half) + exact_value(half + 1)) / 2; }

// Whether a number rounds to `half`, ties to even; compare(m) is the sign of that number minus m.
template <class Compare> bool is_rounded(uint32_t half, Compare compare) {
    const int low = half == 0 ? 1 : compare(midpoint(half - 1)), high = half == 0x7bff ? -1 : compare(midpoint(half));
    return half % 2 == 0 ? low >= 0 && high <= 0 : low > 0 && high < 0;
}

int sign(double x) { return x > 0 ? 1 : x < 0 ? -1 : 0; }

// Products of 12 + 24 and of 24 + 24 bits are exact in double.
bool is_rounded_quotient(uint32_t half, float n, float d, int e) {
    return is_rounded(half, [&](double m) { return sign(std::ldexp(double(n), e) - m * double(d)); });
}
bool is_rounded_root(uint32_t half, float n, uint32_t s, int e) {
    return is_rounded(half, [&](double m) { return sign(std::ldexp(double(n), 2 * e) - m * m * s); });
}

float with_exponent(uint64_t mantissa, int e) {
    return std::bit_cast<float>(uint32_t(e + 127) << 23 | uint32_t(mantissa & 0x7fffff));
}

uint32_t any_divisor(Random& random) { return 1 + random.below((1u << (1 + random.below(24))) - 1); }

} // namespace

TEST_CASE("quotients as fp32: the CPU's own division") {
    Random random{16};
    for (int i = 0; i < 3000000; i++) {
        const float n = with_exponent(random.bits(), int(random.below(124)) - 62),
                    d = with_exponent(random.bits(), int(random.below(124)) - 62);
        REQUIRE(divide(n, d) == n / d);
    }
    for (const float d : {1.0f, 3.0f, 7.0f, 8.0f, 15.0f, 63.0f, 127.0f, 255.0f, std::nextafter(2.0f, 1.0f)})
        for (uint32_t mantissa = 0; mantissa < 1u << 23; mantissa += 5) {
            const float n = with_exponent(mantissa, 0);
            REQUIRE(divide(n, d) == n / d);
            REQUIRE(divide(d, n) == d / n);
        }
    CHECK(divide(with_exponent(0, -62), with_exponent(0, 64)) == with_exponent(0, -126));
    CHECK(divide(with_exponent(~0ull, 100), with_exponent(0, -27)) == with_exponent(~0ull, 127));
}

TEST_CASE("quotients as fp16, rounded once") {
    Random random{17};
    for (int i = 0; i < 3000000; i++) {
        const float n = with_exponent(random.bits(), int(random.below(100)) - 50),
                    d = with_exponent(random.bits(), int(random.below(100)) - 50);
        const int e = std::ilogb(d) - std::ilogb(n) + int(random.below(50)) - 30;
        REQUIRE(is_rounded_quotient(quotient_half_bits(n, d, e), n, d, e));
    }
}

TEST_CASE("quotients as fp16 at every tie and beside it") {
    Random random{18};
    for (uint32_t half = 0; half < 0x7bff; half++)
        for (int i = 0; i < 8; i++) { // the midpoint has 12 bits: with a divisor of 12 bits the dividend is exact
            const float d = with_exponent((random.bits() & 0x7ff) << 12, int(random.below(60)) - 30);
            const int e = int(random.below(40)) - 20;
            const auto n = float(std::ldexp(midpoint(half) * double(d), -e));
            REQUIRE(quotient_half_bits(n, d, e) == (half % 2 == 0 ? half : half + 1));
            REQUIRE(quotient_half_bits(std::nextafter(n, 0.0f), d, e) == half);
            REQUIRE(quotient_half_bits(std::nextafter(n, 1e30f), d, e) == half + 1);
        }
    CHECK(quotient_half_bits(65520, 1, 0) == 0x7bff);
    CHECK(quotient_half_bits(1, 1, 16) == 0x7bff);
    CHECK(quotient_half_bits(1, 1, 200) == 0x7bff);
    CHECK(quotient_half_bits(1, 1, -25) == 0);
    CHECK(quotient_half_bits(1, 1, -200) == 0);
    CHECK(quotient_half_bits(std::nextafter(1.0f, 2.0f), 1, -25) == 1);
}

TEST_CASE("square roots of quotients as fp16, rounded once") {
    Random random{19};
    for (int i = 0; i < 3000000; i++) {
        const float n = with_exponent(random.bits(), int(random.below(100)) - 50);
        const uint32_t s = any_divisor(random);
        const int e = (std::ilogb(double(s)) - std::ilogb(n)) / 2 + int(random.below(50)) - 30;
        REQUIRE(is_rounded_root(sqrt_quotient_half_bits(n, s, e), n, s, e));
    }
}

TEST_CASE("square roots of quotients as fp16 at every tie and beside it") {
    Random random{20};
    int odd_divisors = 0;
    for (uint32_t half = 0; half < 0x7bff; half++)
        for (int i = 0; i < 8; i++) { // the midpoint's square has at most 24 bits: with a power of two the dividend is exact
            uint32_t s = 1u << random.below(24);
            const double square = midpoint(half) * midpoint(half);
            if (const double n = square * (s | 1); s > 1 && double(float(n)) == n) { // subnormal: fewer bits
                s |= 1;
                odd_divisors++;
            }
            const int e = int(random.below(40)) - 20;
            const auto n = float(std::ldexp(square * s, -2 * e));
            REQUIRE(sqrt_quotient_half_bits(n, s, e) == (half % 2 == 0 ? half : half + 1));
            REQUIRE(sqrt_quotient_half_bits(std::nextafter(n, 0.0f), s, e) == half);
            REQUIRE(sqrt_quotient_half_bits(std::nextafter(n, 1e38f), s, e) == half + 1);
        }
    CHECK(odd_divisors > 1000);
    for (uint32_t half = 1; half < 0x7c00; half++) // and exact results
        for (const uint32_t s : {1u, 3u, 9u}) {
            const auto n = float(exact_value(half) * exact_value(half) * s);
            if (double(n) == exact_value(half) * exact_value(half) * s) REQUIRE(sqrt_quotient_half_bits(n, s, 0) == half);
        }
    CHECK(sqrt_quotient_half_bits(65520.0f * 65520.0f, 1, 0) == 0x7bff);
    CHECK(sqrt_quotient_half_bits(1, 1, 16) == 0x7bff);
    CHECK(sqrt_quotient_half_bits(1, 1, 300) == 0x7bff);
    CHECK(sqrt_quotient_half_bits(1, 1, -300) == 0);
    CHECK(sqrt_quotient_half_bits(1, 0xffffff, -14) == 0); // 2^-26
    CHECK(sqrt_quotient_half_bits(with_exponent(0, -126), 1, 63) == 0x3c00);
    CHECK(sqrt_quotient_half_bits(with_exponent(0, 127), 2, -63) == 0x3c00);
}
