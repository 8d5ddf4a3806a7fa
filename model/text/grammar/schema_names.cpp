// References by name, "$ref": "item.json#/items", become references by place, "#/$defs/item/items", before anything is converted.
// Two walks over the document do that: the first notes where each $id and $anchor is, the second replaces. Names are compared as
// they are written: a relative one is not resolved against the $id around it.
// The walks must know data from schemas: a property that is called "$id" and an example with a member "$ref" mean nothing. The
// members of `properties` are names, those of `enum` are data.
#include "model/text/grammar/schema_names.h"
#include "model/text/grammar/interrupt.h"
#include "model/text/grammar/schema_keywords.h"
#include <algorithm>
#include <map>
#include <vector>

namespace tq::grammar {
namespace {

constexpr size_t max_kept_bytes = 1000; // of a name and of a place: many may lie in one another

// Keywords whose value is data, and those whose members are schemas by names of their own.
constexpr std::string_view of_data[]{"const", "enum", "default", "examples", "example"},
    of_names[]{"properties", "$defs", "definitions", "patternProperties", "dependentSchemas"};

bool is_one_of(const auto& words, const std::string& key) { return std::ranges::find(words, key) != std::end(words); }

// The way from the root to a schema: names and numbers.
struct Step {
    const std::string* key; // null: `index`
    size_t index;
};
using Way = std::vector<Step>;

// A JSON pointer within a URI; empty if it is too long to be kept. The root's is empty, too.
std::string place_of(const Way& way) {
    std::string out;
    for (const Step& step : way) {
        out += '/';
        if (!step.key) out += std::to_string(step.index);
        if (step.key)
            for (const char c : step.key->substr(0, max_kept_bytes + 1))
                out += c == '~' ? "~0" : c == '/' ? "~1" : c == '%' ? "%25" : std::string(1, c);
        if (out.size() > max_kept_bytes) return "";
    }
    return out;
}

// Calls `visit` with each schema, the way to it and the $id of the document that it is in.
template <class Visit>
void walk_schemas(SchemaJson& schema, Way& way, std::string_view base, bool are_names, const Visit& visit) {
    look_at_interrupt();
    const std::string_view inner = schema.is_object() && !are_names ? visit(schema, way, base) : base;
    if (schema.is_object())
        for (auto& [key, value] : schema.get_ref<SchemaJson::object_t&>()) {
            if (!value.is_structured() || (!are_names && is_one_of(of_data, key))) continue;
            way.push_back({&key, 0});
            walk_schemas(value, way, inner, !are_names && is_one_of(of_names, key), visit);
            way.pop_back();
        }
    else if (schema.is_array())
        for (size_t i = 0; i < schema.size(); ++i) {
            way.push_back({nullptr, i});
            walk_schemas(schema[i], way, inner, false, visit);
            way.pop_back();
        }
}

std::string_view text_member(const SchemaJson& schema, const char* key) {
    const auto found = schema.find(key);
    if (found == schema.end() || !found->is_string()) return "";
    const std::string& text = found->get_ref<const std::string&>();
    return text.size() <= max_kept_bytes ? std::string_view(text) : "";
}

} // namespace

void place_references(SchemaJson& document) {
    std::map<std::string, std::string, std::less<>> places; // by names
    Way way;
    walk_schemas(document, way, "", false, [&](const SchemaJson& schema, const Way& at, std::string_view base) {
        std::string_view id = text_member(schema, "$id");
        if (id.empty()) id = text_member(schema, "id");
        const std::string_view own = id.empty() ? base : id;
        const auto note = [&](std::string name) {
            const std::string place = place_of(at);
            if (!place.empty() || at.empty()) places.try_emplace(std::move(name), place);
        };
        if (!id.empty()) note(std::string(id));
        for (const char* key : {"$anchor", "$dynamicAnchor"})
            if (const std::string anchor(text_member(schema, key)); !anchor.empty()) {
                note("#" + anchor);
                note(std::string(own) + "#" + anchor);
            }
        return own;
    });
    if (places.empty()) return;
    walk_schemas(document, way, "", false, [&](SchemaJson& schema, const Way&, std::string_view base) {
        const std::string reference(text_member(schema, "$ref"));
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
