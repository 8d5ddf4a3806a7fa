// JSON numbers between two bounds as GBNF.
#pragma once
#include <cstdint>
#include <optional>
#include <string>

namespace tq::grammar {

struct NumberBound {
    double value = 0;
    bool exclusive = false; // the bound itself is not allowed
};

// Integers from min to max, both included, without leading zeros; without a bound they have up to 16 digits.
std::string integer_range_gbnf(std::optional<int64_t> min, std::optional<int64_t> max);

// Decimal numbers without an exponent, with up to 16 digits before the point and 15 behind it. Throws an Error if a bound is not
// within max_number, or no number lies between them.
constexpr double max_number = 1e16;
std::string number_range_gbnf(std::optional<NumberBound> min, std::optional<NumberBound> max);

} // namespace tq::grammar
