// GBNF, llama.cpp's notation for grammars:
//   root  ::= "yes" | "no" | list      # the rule that an answer must follow is named root
//   list  ::= "[" item ("," item)* "]"
//   item  ::= [a-z]+ | [^\x00-\x1F"]{1,8} | .
// Texts and classes take the escapes \n \r \t \\ \" \[ \] \- \^ \/ \xNN \uNNNN \UNNNNNNNN; a number is a code point. A rule ends
// with its line, except within parentheses and after ::= and |. <think> is the special token of that name.
#pragma once
#include "model/text/grammar/syntax.h"

namespace tq::grammar {

constexpr size_t max_gbnf_bytes = 1u << 20;

// Throws an Error with the line and the column if the text is not GBNF, lacks a rule, or exceeds 1 MiB, 65,536 rules, or 100
// nested groups; also if a rule calls itself before it reads anything (left recursion) or can never end.
Syntax parse_gbnf(std::string_view text);

} // namespace tq::grammar
