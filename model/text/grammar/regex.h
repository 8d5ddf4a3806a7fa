// Regular expressions that match the text between the quotes of a JSON string.
#pragma once
#include "model/text/grammar/regex_tree.h"
#include <string>
#include <string_view>

namespace tq::grammar {

// The expression of one character of the ranges as JSON writes it: with an escape if it must have one. Control characters without
// a short escape are left out. Empty if no character is left.
std::string json_chars(std::vector<CharRange> ranges, bool negated = false);

// A regular expression of ECMA-262's kind; without ^ or $ anything may come before or after. `any`: the name of the rule of any
// character. Throws an Error that names the offset and the part that is not supported.
Regex parse_regex(std::string_view pattern, std::string_view any);

} // namespace tq::grammar
