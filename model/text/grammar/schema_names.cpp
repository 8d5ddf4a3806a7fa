// References by name, "$ref": "item.json#/items", become references by place, "#/$defs/item/items", before anything is converted.
// Two walks over the document do that: the first notes where each $id and $anchor is, the second replaces. Names are compared as
// they are written: a relative one is not resolved against the $id around it.
// The walks must know data from schemas: a property that is called "$id" and an example with a member "$ref" mean nothing. The
// members of `properties` are names, those of `enum` are data.
#include "model/text/grammar/schema_names.h"
#include "model/text/grammar/schema_merge.h"
#include <algorithm>
#include <map>
#include <string>

namespace tq::grammar {
namespace {

// Keywords whose value is data, and those whose members are schemas by names of their own.
constexpr std::string_view of_data[]{"const", "enum", "default", "examples", "example"},
    of_names[]{"properties", "$defs", "definitions", "patternProperties", "dependentSchemas"};

bool is_one_of(const auto& words, const std::string& key) { return std::ranges::find(words, key) != std::end(words); }

// A part of a JSON pointer within a URI.
std::string escaped_part(const std::string& key) {
    std::string out;
    for (const char c : key) out += c == '~' ? "~0" : c == '/' ? "~1" : c == '%' ? "%25" : std::string(1, c);
    return out;
}

// Calls `visit` with each schema, its place and the $id of the document that it is in.
template <class Visit>
void walk_schemas(SchemaJson& schema, const std::string& place, const std::string& base, bool are_names, const Visit& visit) {
    std::string inner = base;
    if (schema.is_object() && !are_names) inner = visit(schema, place, base);
    if (schema.is_object())
        for (const auto& [key, value] : schema.items()) {
            if (!are_names && is_one_of(of_data, key)) continue;
            walk_schemas(value, place + "/" + escaped_part(key), inner, !are_names && is_one_of(of_names, key), visit);
        }
    else if (schema.is_array())
        for (size_t i = 0; i < schema.size(); ++i) walk_schemas(schema[i], place + "/" + std::to_string(i), inner, false, visit);
}

std::string text_member(const SchemaJson& schema, const char* key) {
    const auto found = schema.find(key);
    return found != schema.end() && found->is_string() ? found->get<std::string>() : "";
}

} // namespace

void place_references(SchemaJson& document) {
    std::map<std::string, std::string> places; // by names
    walk_schemas(document, "", "", false, [&](const SchemaJson& schema, const std::string& place, const std::string& base) {
        std::string id = text_member(schema, "$id");
        if (id.empty()) id = text_member(schema, "id");
        if (!id.empty()) places.try_emplace(id, place);
        const std::string own = id.empty() ? base : id;
        for (const char* key : {"$anchor", "$dynamicAnchor"})
            if (const std::string anchor = text_member(schema, key); !anchor.empty()) {
                places.try_emplace("#" + anchor, place);
                places.try_emplace(own + "#" + anchor, place);
            }
        return own;
    });
    if (places.empty()) return;
    walk_schemas(document, "", "", false, [&](SchemaJson& schema, const std::string&, const std::string& base) {
        const std::string reference = text_member(schema, "$ref");
        const size_t hash = reference.find('#');
        if (reference.empty() || reference == "#" || reference.starts_with("#/")) return base;
        const std::string fragment = hash == reference.npos ? "" : reference.substr(hash + 1);
        auto found = places.find(reference);
        const bool is_whole = found != places.end();
        if (!is_whole && (fragment.empty() || fragment[0] == '/')) found = places.find(reference.substr(0, hash));
        if (found != places.end()) schema["$ref"] = "#" + found->second + (is_whole ? "" : fragment);
        return base;
    });
}

} // namespace tq::grammar
