// Objects and arrays of a JSON schema as GBNF.
#pragma once
#include "model/text/grammar/schema_rules.h"

namespace tq::grammar {

std::string object_gbnf(SchemaRules& rules, const SchemaJson& schema, const std::string& place, const std::string& name);
std::string array_gbnf(SchemaRules& rules, const SchemaJson& schema, const std::string& place, const std::string& name);

} // namespace tq::grammar
