// allOf: two schemas as one.
#pragma once
#include <nlohmann/json.hpp>
#include <string>

namespace tq::grammar {

using SchemaJson = nlohmann::ordered_json;

class SchemaRules;

// Returns the schema of values that both allow. If a keyword of `b` cannot be merged, it is left out: SchemaRules::leave_out().
// `place` is a JSON pointer.
SchemaJson merge_schemas(const SchemaJson& a, const SchemaJson& b, const std::string& place, const SchemaRules& rules);

// True for keywords that say nothing about values.
bool is_annotation(std::string_view keyword);
bool says_nothing(const SchemaJson& schema);   // but annotations
bool allows_nothing(const SchemaJson& schema); // false, or "not" of a schema that allows all, zod 3's form of undefined

// Throws an Error: "the JSON schema, at /properties/a: ..."
[[noreturn]] void refuse_schema(const std::string& place, std::string_view what);

} // namespace tq::grammar
