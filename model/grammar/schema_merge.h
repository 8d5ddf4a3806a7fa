// allOf: two schemas as one.
#pragma once
#include <nlohmann/json.hpp>
#include <string>

namespace tq::grammar {

using SchemaJson = nlohmann::ordered_json;

// Returns the schema of values that both allow. Throws an Error that names the keyword where they cannot be merged; `place` is a
// JSON pointer.
SchemaJson merge_schemas(const SchemaJson& a, const SchemaJson& b, const std::string& place);

// True for keywords that say nothing about values.
bool is_annotation(std::string_view keyword);

// Throws an Error: "the JSON schema, at /properties/a: ..."
[[noreturn]] void refuse_schema(const std::string& place, std::string_view what);

} // namespace tq::grammar
