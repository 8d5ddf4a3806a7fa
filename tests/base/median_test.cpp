// Statistics, and searches in floats.
#include "base/statistics.h"
#include <cmath>
#include <doctest/doctest.h>

using tq::argmax, tq::median, tq::statistics;

TEST_CASE("the median of an even number of values is between the middle two, and of none it is 0") {
    CHECK(median({}) == 0);
    CHECK(median({3}) == 3);
    CHECK(median({9, 1, 5}) == 5);
    CHECK(median({9, 1, 7, 2}) == 4.5);
    CHECK(median({4, 4, 1, 1}) == 2.5);
}

TEST_CASE("one value has no deviation, and several have that of a sample") {
    CHECK(statistics({}).mean == 0);
    const std::vector<double> one{7}, some{2, 4, 4, 4, 5, 5, 7, 9};
    CHECK(statistics(one).mean == 7);
    CHECK(statistics(one).deviation == 0);
    CHECK(statistics(some).mean == 5);
    CHECK(statistics(some).deviation == doctest::Approx(2.13809));
}

TEST_CASE("of equal values the first is the greatest") {
    const std::vector<float> values{-3, 5, 2, 5};
    CHECK(argmax(values) == 1);
    CHECK(argmax(std::span(values).first(1)) == 0);
}

TEST_CASE("the greatest value, and one that is not finite, is found at every place of every length") {
    for (const size_t size : {1u, 2u, 63u, 64u, 65u, 127u, 128u, 200u}) {
        std::vector<float> values(size, -2);
        CHECK(tq::all_finite(values));
        for (size_t at = 0; at < size; at++) {
            values[at] = 3;
            CHECK(tq::greatest(values) == 3);
            CHECK(argmax(values) == at);
            std::vector<uint32_t> found;
            tq::each_passing(
                values, [](float x) { return x > 0; }, [&](uint32_t i) { found.push_back(i); });
            CHECK(found == std::vector{uint32_t(at)});
            for (const float bad : {INFINITY, -INFINITY, NAN}) {
                values[at] = bad;
                CHECK_FALSE(tq::all_finite(values));
            }
            values[at] = -2;
        }
    }
    CHECK(tq::greatest({}) == -INFINITY);
    CHECK(argmax(std::vector<float>(3, -INFINITY)) == 0);
    CHECK(argmax(std::vector<float>(3, NAN)) == 0);
}
