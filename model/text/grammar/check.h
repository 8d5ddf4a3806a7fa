// Checks that a grammar can be run: no left recursion, and an end to every rule.
#pragma once
#include "model/text/grammar/syntax.h"

namespace tq::grammar {

// Throws an Error that names a rule, and its place in `text`, which begins with a call of itself, or which has no end.
// Time and memory are linear in the grammar, except that rules are checked again until nothing changes.
void check_syntax(const Syntax& syntax, std::string_view text);

// True for each expression that can match the empty text.
std::vector<bool> empty_expressions(const Syntax& syntax);

} // namespace tq::grammar
