// The statistics of small sets of values.
#include "base/statistics.h"
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
