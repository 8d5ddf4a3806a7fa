// Checks that a grammar can be run: no left recursion, and an end to every rule.
#pragma once
#include "model/grammar/syntax.h"

namespace tq::grammar {

// Throws an Error that names a rule, and its place in `text`, which begins with a call of itself, or which has no end.
// Time and memory are linear in the grammar, except that rules are checked again until nothing changes.
void check_syntax(const Syntax& syntax, std::string_view text);

} // namespace tq::grammar
