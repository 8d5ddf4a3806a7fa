// Regular expressions that match the text between the quotes of a JSON string.
#pragma once
#include "model/text/grammar/gbnf_writer.h"
#include "model/text/grammar/regex_tree.h"
#include <string>
#include <string_view>

namespace tq::grammar {

constexpr size_t max_pattern_bytes = 64 << 10; // of all patterns of a text: each byte becomes some 200 of a tree

// The expression of one character of the ranges as JSON writes it: with an escape if it must have one. Control characters without
// a short escape are left out. Empty if no character is left.
std::string json_chars(std::vector<CharRange> ranges, bool negated = false);

// An expression that a text matches as a whole, or does not match.
struct RegexPart {
    Regex regex;
    bool negated;
};

// A regular expression of ECMA-262's kind; without ^ or $ anything may come before or after. A text must match all parts: the
// first is the expression itself, the others are lookaheads at its beginning. Throws an Error that names the offset and the part
// that is not supported, or if the pattern is too long.
std::vector<RegexPart> parse_regex(std::string_view pattern, GbnfWriter& writer);

} // namespace tq::grammar
