// allOf, and keywords beside $ref: two schemas become one that allows what both allow, keyword by keyword. Types and enums are
// intersected, bounds are the stricter ones, names that are required add up, and a property that both describe gets an allOf of
// its own, which is merged when the property is written. If two values of a keyword cannot be merged (two patterns), the first
// stays and leave_out() decides whether that is an error.
// Annotations say nothing about values and are never merged.
#include "model/text/grammar/schema_merge.h"
#include "base/error.h"
#include "base/printable.h"
#include "model/text/grammar/schema_rules.h"
#include <algorithm>
#include <array>

namespace tq::grammar {
namespace {

constexpr std::array<std::string_view, 23> annotations{
    "title",       "description",  "default",       "examples", "example",          "$schema",         "$id",
    "$comment",    "$anchor",      "deprecated",    "readOnly", "writeOnly",        "$defs",           "definitions",
    "id",          "strict",       "discriminator", "xml",      "contentMediaType", "contentEncoding", "externalDocs",
    "$vocabulary", "contentSchema"};

SchemaJson as_list(const SchemaJson& value) { return value.is_array() ? value : SchemaJson::array({value}); }

bool has_item(const SchemaJson& list, const SchemaJson& value) { return std::ranges::find(list, value) != list.end(); }

SchemaJson in_both(const SchemaJson& a, const SchemaJson& b) {
    SchemaJson both = SchemaJson::array();
    for (const SchemaJson& item : a)
        if (has_item(b, item)) both.push_back(item);
    return both;
}

// An integer is a number too.
SchemaJson types_in_both(SchemaJson a, SchemaJson b) {
    a = as_list(a), b = as_list(b);
    for (SchemaJson* list : {&a, &b})
        if (has_item(*list, "number")) list->push_back("integer");
    SchemaJson both = in_both(a, b);
    if (has_item(both, "number")) both.erase(std::ranges::find(both, "integer"));
    return both;
}

SchemaJson merge_properties(SchemaJson a, const SchemaJson& b) {
    for (const auto& [name, schema] : b.items()) {
        const auto found = a.find(name);
        if (found == a.end())
            a[name] = schema;
        else if (*found != schema)
            *found = {{"allOf", {*found, schema}}};
    }
    return a;
}

SchemaJson merge_keyword(const std::string& keyword, const SchemaJson& a, const SchemaJson& b, const std::string& place,
                         const SchemaRules& rules) {
    const bool numbers = a.is_number() && b.is_number();
    if (keyword == "properties" && a.is_object() && b.is_object()) return merge_properties(a, b);
    if (keyword == "required" && a.is_array() && b.is_array()) {
        SchemaJson both = a;
        for (const SchemaJson& name : b)
            if (!has_item(both, name)) both.push_back(name);
        return both;
    }
    if (keyword == "type") return types_in_both(a, b);
    if (keyword == "enum" && a.is_array() && b.is_array()) return in_both(a, b);
    if (numbers && (keyword.starts_with("min") || keyword == "exclusiveMinimum")) return std::max(a, b);
    if (numbers && (keyword.starts_with("max") || keyword == "exclusiveMaximum")) return std::min(a, b);
    if (keyword == "additionalProperties" || keyword == "items") {
        if (a == true) return b;
        if (b == true) return a;
        if (a == false || b == false) return false;
        return {{"allOf", {a, b}}};
    }
    if (keyword == "allOf" && a.is_array() && b.is_array()) {
        SchemaJson both = a;
        both.insert(both.end(), b.begin(), b.end());
        return both;
    }
    rules.leave_out(place, fmt::format("the keyword '{}' has several values, of allOf or beside it, which cannot be merged",
                                       printable(keyword)));
    return a;
}

} // namespace

bool is_annotation(std::string_view keyword) {
    return keyword.starts_with("x-") || std::ranges::find(annotations, keyword) != annotations.end();
}

bool says_nothing(const SchemaJson& schema) {
    return std::ranges::all_of(schema.items(), [](const auto& item) { return is_annotation(item.key()); });
}

bool allows_nothing(const SchemaJson& schema) {
    if (!schema.is_object()) return schema == false;
    const auto excluded = schema.find("not");
    return excluded != schema.end() && (*excluded == true || (excluded->is_object() && says_nothing(*excluded)));
}

void refuse_schema(const std::string& place, std::string_view what) {
    fail("the JSON schema, at {}: {}", place.empty() ? "its root" : printable(place, 200), what);
}

SchemaJson merge_schemas(const SchemaJson& a, const SchemaJson& b, const std::string& place, const SchemaRules& rules) {
    if (a == true) return b;
    if (b == true) return a;
    if (!a.is_object() || !b.is_object()) refuse_schema(place, "allOf has a part that is not an object, or allows nothing");
    SchemaJson both = a;
    for (const auto& [keyword, value] : b.items()) {
        if (is_annotation(keyword)) continue;
        const auto found = both.find(keyword);
        if (found == both.end())
            both[keyword] = value;
        else if (*found != value)
            *found = merge_keyword(keyword, *found, value, place, rules);
    }
    return both;
}

} // namespace tq::grammar
