// Strings and numbers of a JSON schema as GBNF.
#pragma once
#include "model/text/grammar/schema_rules.h"

namespace tq::grammar {

std::string string_gbnf(SchemaRules& rules, const SchemaJson& schema, const std::string& place);
std::string number_gbnf(SchemaRules& rules, const SchemaJson& schema, const std::string& place, bool is_integer);

// Returns a keyword's number, at most 100 million; `otherwise` if it is missing.
uint32_t schema_count(const SchemaJson& schema, const char* keyword, uint32_t otherwise, const std::string& place);

// Returns "{2,5}"; "{2,}" if `max` is unlimited.
std::string times_gbnf(uint32_t min, uint32_t max);

} // namespace tq::grammar
