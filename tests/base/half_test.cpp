// fp16 conversions against arithmetic that does not round: all 65536 values, and every tie between them.
#include "base/half.h"
#include <algorithm>
#include <bit>
#include <cmath>
#include <doctest/doctest.h>

using namespace tq;

namespace {

// The value of finite fp16 bits; 65536 stands for the number after the largest.
double exact_value(uint32_t half) {
    const int exponent = int(half >> 10 & 31), fraction = int(half & 1023);
    const double magnitude = std::ldexp(exponent == 0 ? fraction : 1024 + fraction, std::max(exponent, 1) - 25);
    return (half & 0x8000) != 0 ? -magnitude : magnitude;
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
