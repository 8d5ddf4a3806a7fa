// Several regular expressions that one text matches.
#pragma once
#include "model/text/grammar/regex.h"
#include <optional>

namespace tq::grammar {

// Returns an expression for texts of `min` to `max` characters that match all parts, or do not match those that are negated, as
// JSON writes them. Returns nullopt if there is none, or the automaton would be too large.
std::optional<std::string> regex_product_gbnf(GbnfWriter& writer, const std::vector<RegexPart>& parts, uint32_t min,
                                              uint32_t max);

} // namespace tq::grammar
