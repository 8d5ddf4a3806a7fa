// fp16 conversions against arithmetic that does not round: all 65536 values, every tie between them, and exact quotients.
#include "base/half.h"
#include "model/kv/turboquant.h"
#include "tests/codec_vectors.h"
#include <bit>
#include <cmath>
#include <doctest/doctest.h>

using namespace tq;
using tq::test::Random;

namespace {

// The value of finite fp16 bits; what 65536 would be counts as the one after the largest.
double exact_value(uint32_t half) {
    const int exponent = int(half >> 10 & 31), fraction = int(half & 1023);
    const double magnitude = std::ldexp(exponent == 0 ? fraction : 1024 + fraction, std::max(exponent, 1) - 25);
    return (half & 0x8000) != 0 ? -magnitude : magnitude;
}

// Whether `half` is what n / d * 2^e rounds to, ties to even, by the products of its neighbours' midpoints with d, which are
// exact in double (12 and 24 bits).
bool is_rounded_quotient(uint16_t half, float n, float d, int e) {
    const double exact = std::ldexp(double(n), e), low = half == 0 ? 0 : (exact_value(half - 1u) + exact_value(half)) / 2 * d;
    const double high = (exact_value(half) + exact_value(half + 1u)) / 2 * d;
    if (half == 0x7bff) return exact >= low; // saturates
    const bool even = half % 2 == 0;
    return even ? exact >= low && exact <= high : exact > low && exact < high;
}

float with_exponent(uint64_t mantissa, int e) {
    return std::bit_cast<float>(uint32_t(e + 127) << 23 | uint32_t(mantissa & 0x7fffff));
}

} // namespace

TEST_CASE("fp16 to fp32, all values") {
    for (uint32_t half = 0; half < 65536; half++) {
        const float value = half_to_float(uint16_t(half));
        if ((half & 0x7c00) == 0x7c00) {
            REQUIRE(std::isnan(value) == ((half & 1023) != 0));
            REQUIRE(std::isinf(value) == ((half & 1023) == 0));
        } else {
            REQUIRE(double(value) == exact_value(half));
        }
        REQUIRE(std::signbit(value) == (half >= 0x8000));
        if (!std::isnan(value)) REQUIRE(float_to_half(value) == half);
    }
}

TEST_CASE("fp32 to fp16 at every tie and beside it") {
    for (uint32_t half = 0; half < 0x7c00; half++) {
        const auto tie = float((exact_value(half) + exact_value(half + 1)) / 2);
        const uint32_t even = half % 2 == 0 ? half : half + 1;
        REQUIRE(float_to_half(tie) == even);
        REQUIRE(float_to_half(-tie) == (even | 0x8000));
        REQUIRE(float_to_half(std::nextafter(tie, 0.0f)) == half);
        REQUIRE(float_to_half(std::nextafter(tie, 1e9f)) == half + 1); // 7c00 after the last: infinity
    }
    for (const uint32_t nan : {0x7f800001u, 0x7fc00000u, 0xff812345u, 0xffffffffu})
        CHECK(float_to_half(std::bit_cast<float>(nan)) == (0x7e00 | (nan >> 16 & 0x8000)));
    CHECK(float_to_half(std::bit_cast<float>(0x00000001u)) == 0);
    CHECK(float_to_half(std::bit_cast<float>(0x807fffffu)) == 0x8000);
    CHECK(float_to_half(3.4e38f) == 0x7c00);
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
        for (int i = 0; i < 8; i++) { // the midpoint has 12 bits: with a divisor of 12 the dividend is exact
            const float d = with_exponent((random.bits() & 0x7ff) << 12, int(random.below(60)) - 30);
            const int e = int(random.below(40)) - 20;
            const auto n = float(std::ldexp((exact_value(half) + exact_value(half + 1)) / 2 * d, -e));
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
