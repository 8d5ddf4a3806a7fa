// The members of an object as parameters of a call.
#pragma once
#include "model/text/grammar/schema_rules.h"

namespace tq::grammar {

// An expression for <parameter=NAME>, a newline, the value, a newline and </parameter>, also with a newline, for each member.
// Texts stand without quotes: any that a rule `text-0` allows. Other values are JSON.
std::string parameters_gbnf(SchemaRules& rules, const SchemaJson& schema, const std::string& place, const std::string& name);

} // namespace tq::grammar
