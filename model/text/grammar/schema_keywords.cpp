#include "model/text/grammar/schema_keywords.h"
#include "base/error.h"
#include "base/printable.h"
#include "model/text/grammar/interrupt.h"
#include "model/text/grammar/schema_rules.h"
#include <algorithm>
#include <span>
#include <utility>

namespace tq::grammar {
namespace {

// Keywords that belong to one type, which they imply if `type` is missing.
constexpr std::pair<std::string_view, std::string_view> typed_keywords[] = {
    {"properties", "object"},
    {"required", "object"},
    {"additionalProperties", "object"},
    {"propertyNames", "object"},
    {"minProperties", "object"},
    {"maxProperties", "object"},
    {"items", "array"},
    {"prefixItems", "array"},
    {"minItems", "array"},
    {"maxItems", "array"},
    {"additionalItems", "array"},
    {"uniqueItems", "array"},
    {"minLength", "string"},
    {"maxLength", "string"},
    {"pattern", "string"},
    {"format", "string"},
    {"minimum", "number"},
    {"maximum", "number"},
    {"exclusiveMinimum", "number"},
    {"exclusiveMaximum", "number"},
    {"multipleOf", "number"},
    {"patternProperties", "object"},
    {"unevaluatedProperties", "object"},
    {"unevaluatedItems", "array"},
};

constexpr std::string_view untyped_keywords[] = {"type", "enum", "const", "anyOf", "oneOf", "allOf", "$ref", "nullable"};

// Constraints that a grammar cannot express; those that may describe members of an object come first.
constexpr std::string_view unsupported[] = {"then",
                                            "else",
                                            "dependentSchemas",
                                            "dependencies",
                                            "propertyDependencies",
                                            "$dynamicRef",
                                            "$recursiveRef",
                                            "extends",
                                            "if",
                                            "not",
                                            "dependentRequired",
                                            "contains",
                                            "minContains",
                                            "maxContains",
                                            "disallow",
                                            "divisibleBy",
                                            "formatMinimum",
                                            "formatMaximum",
                                            "formatExclusiveMinimum",
                                            "formatExclusiveMaximum"};
constexpr size_t adding_members = 8;

} // namespace

const SchemaJson unknown_schema = {{"$dynamicRef", "#"}};

static bool has_type(std::string_view keyword) {
    return std::ranges::find(typed_keywords, keyword, [](const auto& k) { return k.first; }) != std::end(typed_keywords);
}

static bool has_word(std::span<const std::string_view> words, std::string_view keyword) {
    return std::ranges::find(words, keyword) != words.end();
}

bool is_annotation(std::string_view keyword) {
    return !has_type(keyword) && !has_word(untyped_keywords, keyword) && !has_word(unsupported, keyword);
}

bool may_add_members(std::string_view keyword) { return has_word(std::span(unsupported).first(adding_members), keyword); }

bool says_nothing(const SchemaJson& schema) {
    if (!schema.is_object()) return schema.empty();
    return std::ranges::all_of(schema.get_ref<const SchemaJson::object_t&>(),
                               [](const auto& member) { return is_annotation(member.first); });
}

bool allows_nothing(const SchemaJson& schema) {
    if (!schema.is_object()) return schema == false;
    const auto excluded = schema.find("not");
    return excluded != schema.end() && (*excluded == true || (excluded->is_object() && says_nothing(*excluded)));
}

bool is_null_keyword(std::string_view keyword, const SchemaJson& value) {
    return value.is_null() && keyword != "const" && !is_annotation(keyword);
}

bool is_followed(SchemaRules& rules, std::string_view keyword, const SchemaJson& value, const std::string& place) {
    if (is_annotation(keyword)) return false;
    const bool is_unique = keyword == "uniqueItems" && value != false;
    if (!is_unique && !has_word(unsupported, keyword)) return true;
    rules.leave_out(place, fmt::format("the keyword '{}' is not supported", printable(keyword, 100)));
    return may_add_members(keyword);
}

uint32_t type_bits(const SchemaJson& type, const std::string& place) {
    uint32_t bits = 0;
    const auto add = [&](const SchemaJson& name) {
        look_at_interrupt();
        const auto known =
            name.is_string() ? std::ranges::find(type_names, name.get_ref<const std::string&>()) : std::end(type_names);
        if (known == std::end(type_names))
            refuse_schema(place, "'type' must be object, array, string, number, integer, boolean, null, or a list of them");
        bits |= type_bit(size_t(known - type_names));
    };
    if (type.is_array())
        std::ranges::for_each(type, add);
    else
        add(type);
    return bits;
}

uint32_t types_of_value(const SchemaJson& value) {
    const auto bit = [](std::string_view name) { return type_bit(size_t(std::ranges::find(type_names, name) - type_names)); };
    if (value.is_number()) return bit("number") | (value.is_number_integer() ? bit("integer") : 0);
    return bit(value.is_boolean() ? "boolean" : value.type_name());
}

std::string_view implied_type(const SchemaJson& schema) {
    for (const auto& [keyword, implied] : typed_keywords)
        if (schema.contains(keyword)) return implied;
    return "";
}

void refuse_schema(const std::string& place, std::string_view what) {
    fail("the JSON schema, at {}: {}", place.empty() ? "its root" : printable(place, 200), what);
}

std::string place_below(const std::string& place, std::string_view part) {
    constexpr size_t longest = 256; // messages show less
    return place.size() > longest ? place : fmt::format("{}/{}", place, part.substr(0, longest));
}

std::string name_below(const std::string& name, std::string_view part) {
    constexpr size_t longest = 60; // GbnfWriter::new_name() cuts there
    return name.size() > longest ? name : fmt::format("{}-{}", name, part.substr(0, longest));
}

} // namespace tq::grammar
