// A grammar as it is written: rules and the expressions that they are made of, from GBNF (gbnf.h).
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tq::grammar {

struct CharRange {
    char32_t first, last;
    bool operator==(const CharRange&) const = default;
};

constexpr uint32_t unlimited = UINT32_MAX;

struct Expr {
    enum class Kind : uint8_t {
        text,     // these bytes; empty: nothing
        chars,    // one code point of the ranges
        rule,     // a call of rules[rule]
        sequence, // all of `of`, in order
        choice,   // one of `of`
        repeat,   // of[0], from `min` to `max` times
    };
    Kind kind;
    uint32_t rule = 0, min = 0, max = 0;
    std::string text;
    std::vector<CharRange> chars; // in ascending order, disjoint, without surrogates
    std::vector<uint32_t> of;     // indices into Syntax::exprs, all lower than this one's
};

struct Rule {
    std::string name;
    uint32_t body;   // index into Syntax::exprs
    size_t position; // offset of its name in the text
};

struct Syntax {
    std::vector<Expr> exprs;
    std::vector<Rule> rules;
    uint32_t root = 0;
    std::vector<std::string> tokens; // literals of the special tokens that the grammar names, such as "<tool_call>"
};

// A special token in a grammar's bytes: its literal between two bytes that UTF-8 never has, so that no text can stand for it.
std::string special_token_bytes(std::string_view literal);

// Returns "line 3, column 7" of the byte at `position`; columns count bytes from 1.
std::string text_position(std::string_view text, size_t position);

} // namespace tq::grammar
