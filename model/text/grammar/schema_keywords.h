// The keywords of a JSON schema: which are followed, and the types that they belong to.
#pragma once
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace tq::grammar {

using SchemaJson = nlohmann::ordered_json;

class SchemaRules;

// True for keywords that say nothing about values: all that JSON Schema and its usual extensions do not know as a constraint.
bool is_annotation(std::string_view keyword);
bool says_nothing(const SchemaJson& schema);   // but annotations
bool allows_nothing(const SchemaJson& schema); // false, or "not" of a schema that allows all, zod 3's form of undefined

// True for a keyword whose null means that it is absent: some programs write lists and maps that are empty as null.
bool is_null_keyword(std::string_view keyword, const SchemaJson& value);

// True for a keyword that a grammar follows. Others are annotations, or go to SchemaRules::leave_out(). True also for a keyword
// that is left out and may_add_members().
bool is_followed(SchemaRules& rules, std::string_view keyword, const SchemaJson& value, const std::string& place);

// True for a keyword that no grammar follows, whose schemas may describe members of an object.
bool may_add_members(std::string_view keyword);

// A schema of which nothing is known.
extern const SchemaJson unknown_schema;

// The types of `type`, a name or a list of names, as a set of bits in the order of type_names. Throws an Error for other names.
constexpr std::string_view type_names[] = {"object", "array", "string", "number", "integer", "boolean", "null"};
uint32_t type_bits(const SchemaJson& type, const std::string& place);
constexpr uint32_t type_bit(size_t i) { return 1u << i; }
uint32_t types_of_value(const SchemaJson& value); // an integer is a number, too

// The type that the keywords of a schema without `type` imply; empty: any.
std::string_view implied_type(const SchemaJson& schema);

// Throws an Error: "the JSON schema, at /properties/a: ..."
[[noreturn]] void refuse_schema(const std::string& place, std::string_view what);

// Places are JSON pointers, for messages, and names of rules are for readers. Both are cut where they are long: a long name
// around many schemas would be copied for each of them.
std::string place_below(const std::string& place, std::string_view part);
std::string name_below(const std::string& name, std::string_view part);

} // namespace tq::grammar
