// Strings and numbers of a JSON schema as GBNF.
#pragma once
#include "model/text/grammar/schema_rules.h"

namespace tq::grammar {

std::string string_gbnf(SchemaRules& rules, const SchemaJson& schema, const std::string& place);
std::string number_gbnf(SchemaRules& rules, const SchemaJson& schema, const std::string& place, bool is_integer);

// Return the number of a keyword such as minItems or maxItems; 0 and `unlimited` if it is missing. An answer hardly has more than
// 32,768 of anything: a greater maximum is none, a greater minimum goes to leave_out().
uint32_t schema_min(SchemaRules& rules, const SchemaJson& schema, const char* keyword, const std::string& place);
uint32_t schema_max(const SchemaJson& schema, const char* keyword, const std::string& place);

bool is_known_format(std::string_view format); // others say nothing about a text

// Returns "{2,5}"; "{2,}" if `max` is unlimited.
std::string times_gbnf(uint32_t min, uint32_t max);

} // namespace tq::grammar
