// JSON numbers that are multiples of another one, as GBNF.
#pragma once
#include "model/text/grammar/gbnf_writer.h"
#include "model/text/grammar/number_range.h"
#include <optional>
#include <string>

namespace tq::grammar {

// Returns an expression for the multiples of `of` (positive) between two bounds, with up to 16 digits, and as many digits after
// the point as `of` has. Returns nullopt if that would take too many rules: the digits of `of` without its zeros are more than
// 100, and more than 1024 multiples lie between the bounds. Throws an Error if none lies there.
std::optional<std::string> multiple_gbnf(GbnfWriter& writer, double of, std::optional<NumberBound> min,
                                         std::optional<NumberBound> max, bool is_integer);

} // namespace tq::grammar
