// A regular expression as a tree, and texts of it between two lengths.
#pragma once
#include "model/text/grammar/syntax.h"
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace tq::grammar {

struct Regex {
    enum class Kind : uint8_t {
        chars,    // one character, whose expression is `text`
        sequence, // all of `of`
        choice,   // one of `of`
        repeat,   // of[0], from `min` to `max` times
    };
    Kind kind;
    std::string text;
    std::shared_ptr<const std::vector<CharRange>> ranges; // of chars; many places may have the same
    uint32_t min = 1, max = 1;
    std::vector<Regex> of;
};

std::string regex_tree_gbnf(const Regex& regex);

// Returns an expression for texts of the regex that have from `min` to `max` characters. These are not all if several parts may
// have several lengths: each part gets a share. Returns nullopt if none is found.
std::optional<std::string> regex_tree_gbnf(const Regex& regex, uint32_t min, uint32_t max);

} // namespace tq::grammar
