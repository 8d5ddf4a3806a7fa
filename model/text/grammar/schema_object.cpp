// Objects and arrays of a schema as grammars.
// Members come in the order in which the schema lists its properties; any order would need as many rules as there are
// permutations. Each property that is not required may be missing. Rules are built from the last property to the first: after[i]
// has the members from i on after another member, and therefore begins with a comma; `begin` has them if none is before. So each
// property needs two rules, however many may be missing. In one respect this deviates from JSON Schema, as llama.cpp and OpenAI
// do: if additionalProperties is missing, the properties that are listed are all. A model that may add any member does not stop.
// If others are allowed, their names must be none of those listed, or a member could be there twice, once with a value of any
// type. A grammar has no "but not", so other_name() writes the complement: a tree of the names, from which another name departs
// at some character, or in which it ends early.
#include "model/text/grammar/schema_object.h"
#include "base/error.h"
#include "base/printable.h"
#include "model/text/grammar/regex.h"
#include "model/text/grammar/schema_values.h"
#include "model/text/unicode.h"
#include <algorithm>
#include <map>

namespace tq::grammar {
namespace {

constexpr size_t max_name_bytes = 256;

struct Property {
    std::string name;
    SchemaJson schema;
    bool required;
};

std::string json_text(const std::string& text) { return SchemaJson(text).dump(); }

// In the given order; names that are only required follow.
std::vector<Property> read_properties(const SchemaRules& rules, const SchemaJson& schema, const std::string& place) {
    std::vector<Property> properties;
    std::map<std::string, size_t> places;
    if (const auto given = schema.find("properties"); given != schema.end()) {
        if (!given->is_object()) refuse_schema(place, "'properties' must be an object");
        for (const auto& [name, value] : given->items()) {
            places[name] = properties.size();
            properties.push_back({name, value, false});
        }
    }
    const auto required = schema.find("required");
    if (required == schema.end() || required->is_boolean()) return properties; // draft 3's boolean belongs to the parent
    if (!required->is_array()) refuse_schema(place, "'required' must be a list of names");
    for (const SchemaJson& name : *required) {
        if (!name.is_string()) refuse_schema(place, "'required' must be a list of names");
        const auto [entry, is_new] = places.try_emplace(name.get<std::string>(), properties.size());
        if (!is_new) {
            properties[entry->second].required = true;
            continue;
        }
        const auto others = schema.find("additionalProperties");
        const bool is_closed = others != schema.end() && *others == false;
        if (is_closed) rules.leave_out(place, fmt::format("'{}' is required, but is no property", printable(entry->first)));
        properties.push_back({entry->first, others == schema.end() || is_closed ? SchemaJson(true) : *others, true});
    }
    return properties;
}

// The beginnings of names, as a tree by the characters as JSON writes them.
struct NameTree {
    std::map<std::string, NameTree> next;
    bool is_name = false;
};

// Returns an expression for the rest, up to the quote, of a name that is none of the tree's.
std::string other_name(const NameTree& tree, GbnfWriter& writer) {
    std::vector<CharRange> taken{{0, 0x1F}, {'"', '"'}, {'\\', '\\'}};
    std::string escapes = "\"\\bfnrt", out = tree.is_name ? "" : "\"\"";
    const auto add = [&](const std::string& choice) { out += (out.empty() ? "" : " | ") + choice; };
    for (const auto& [text, child] : tree.next) {
        if (text[0] == '\\')
            std::erase(escapes, text[1]);
        else
            taken.push_back({step_utf8(text, 0).code_point, step_utf8(text, 0).code_point});
        add(gbnf_text(text) + " " + other_name(child, writer));
    }
    add(gbnf_class(taken, true) + " " + writer.json("char") + "*");
    std::string letters;
    for (const char c : escapes) (letters += c == '"' || c == '\\' ? "\\" : "") += c;
    if (!letters.empty()) add("\"\\\\\" [" + letters + "] " + writer.json("char") + "*");
    const std::string name = writer.new_name("other-name");
    writer.define(name, out);
    return name;
}

std::string other_names(const std::vector<Property>& properties, GbnfWriter& writer) {
    if (properties.empty()) return writer.json("string");
    NameTree tree;
    for (const Property& property : properties) {
        const std::string text = json_text(property.name);
        if (text.size() > max_name_bytes)
            fail("the JSON schema: beside additionalProperties a property's name has at most {} bytes: '{}' is longer",
                 max_name_bytes, printable(property.name));
        NameTree* at = &tree;
        for (size_t i = 1; i + 1 < text.size();) {
            const size_t length = text[i] != '\\' ? step_utf8(text, i).length : text[i + 1] == 'u' ? 6 : 2;
            at = &at->next[text.substr(i, length)];
            i += length;
        }
        at->is_name = true;
    }
    return "\"\\\"\" " + other_name(tree, writer) + " \"\\\"\"";
}

// A name may come twice: a grammar does not remember which ones have been there.
// The members of an object whose properties are not listed: a map.
std::string map_gbnf(GbnfWriter& writer, const SchemaJson& schema, const std::string& member, const std::string& place) {
    const uint32_t min = schema_count(schema, "minProperties", 0, place),
                   max = schema_count(schema, "maxProperties", unlimited, place);
    if (max < min) refuse_schema(place, "'maxProperties' is less than 'minProperties'");
    const std::string space = writer.json("space");
    if (max == 0) return "\"{\" space \"}\"";
    const std::string more = times_gbnf(min == 0 ? 0 : min - 1, max == unlimited ? unlimited : max - 1);
    const std::string members = fmt::format("{} (\",\" space {}){} space", member, member, more);
    return "\"{\" space " + (min == 0 ? "(" + members + ")?" : members) + " \"}\"";
}

// The rule of the members from the i-th on, if others are before them.
std::string rest_of_members(GbnfWriter& writer, const std::vector<Property>& properties, const std::vector<std::string>& members,
                            const std::string& other, const std::string& name) {
    std::string rest = other.empty() ? "" : "(\",\" space " + other + ")*";
    std::vector<std::string> after(properties.size() + 1);
    const auto define = [&](const std::string& body) {
        const std::string own = writer.new_name(name + "-rest");
        writer.define(own, body.empty() ? "\"\"" : body);
        return own;
    };
    after.back() = define(rest);
    std::string begin = other.empty() ? "" : "(" + other + " " + after.back() + ")?"; // no member is before it
    for (size_t i = properties.size(); i-- > 0;) {
        const std::string with = members[i] + " " + after[i + 1];
        begin = properties[i].required ? with : begin.empty() ? "(" + with + ")?" : "(" + with + " | " + define(begin) + ")";
        after[i] = define((properties[i].required ? "\",\" space " + members[i] : "(\",\" space " + members[i] + ")?") + " " +
                          after[i + 1]);
    }
    return begin;
}

} // namespace

std::string object_gbnf(SchemaRules& rules, const SchemaJson& schema, const std::string& place, const std::string& name) {
    constexpr std::ptrdiff_t max_optional = 4000; // any of them may come next: little less than the ways that are followed
    GbnfWriter& writer = rules.writer();
    const std::vector<Property> properties = read_properties(rules, schema, place);
    if (std::ranges::count(properties, false, &Property::required) > max_optional) {
        rules.leave_out(place, fmt::format("more than {} properties that are not required are not supported", max_optional));
        return writer.json("object");
    }
    const auto others = schema.find("additionalProperties");
    const bool has_others = others != schema.end() ? *others != false : !schema.contains("properties");
    const std::string space = writer.json("space");
    if (!properties.empty())
        for (const char* keyword : {"minProperties", "maxProperties", "propertyNames"})
            if (schema.contains(keyword))
                rules.leave_out(place, fmt::format("'{}' beside 'properties' is not supported", keyword));
    std::string other;
    if (has_others) {
        std::string key = other_names(properties, writer);
        if (schema.contains("propertyNames") && properties.empty()) {
            SchemaJson names = schema["propertyNames"];
            if (names.is_object() && !names.contains("type") && !names.contains("$ref")) names["type"] = "string";
            key = rules.rule(names, place + "/propertyNames", name + "-name", true);
        }
        const bool any = others == schema.end() || *others == true;
        other = writer.new_name(name + "-other");
        const std::string value =
            any ? writer.json("value") : rules.rule(*others, place + "/additionalProperties", name + "-value", true);
        writer.define(other, key + " \":\" space " + value);
    }
    if (properties.empty()) return has_others ? map_gbnf(writer, schema, other, place) : "\"{\" space \"}\"";
    std::vector<std::string> members;
    for (const Property& property : properties) {
        const std::string value =
            rules.rule(property.schema, place + "/properties/" + property.name, name + "-" + property.name, true);
        members.push_back(gbnf_text(json_text(property.name) + ":") + " space " + value);
    }
    const bool all_optional = std::ranges::none_of(properties, &Property::required);
    const std::string body = rest_of_members(writer, properties, members, other, name);
    return "\"{\" space " + (all_optional ? "(" + body + " space)" : body + " space") + " \"}\"";
}

std::string array_gbnf(SchemaRules& rules, const SchemaJson& schema, const std::string& place, const std::string& name) {
    GbnfWriter& writer = rules.writer();
    const std::string space = writer.json("space");
    uint32_t min = schema_count(schema, "minItems", 0, place), max = schema_count(schema, "maxItems", unlimited, place);
    if (max < min) refuse_schema(place, "'maxItems' is less than 'minItems'");
    SchemaJson prefix = SchemaJson::array(), items = schema.contains("items") ? schema["items"] : SchemaJson(true);
    if (items.is_array()) { // as before draft 2020-12
        prefix = items;
        items = schema.contains("additionalItems") ? schema["additionalItems"] : SchemaJson(true);
    } else if (schema.contains("prefixItems")) {
        prefix = schema["prefixItems"];
        if (!prefix.is_array()) refuse_schema(place, "'prefixItems' must be a list");
        if (!schema.contains("items")) items = false; // as for properties: only listed ones are allowed
    }
    const auto fixed = uint32_t(std::min<size_t>(prefix.size(), max));
    if (items == false) max = std::min(max, fixed);
    if (max < min) refuse_schema(place, "'minItems' asks for more items than are allowed");
    std::string rest; // what follows the fixed items
    if (max > fixed) {
        const std::string item = rules.rule(items, place + "/items", name + "-item", true);
        const uint32_t min_rest = min > fixed ? min - fixed : 0, max_rest = max == unlimited ? unlimited : max - fixed;
        rest = fmt::format("(\",\" space {}){}", item, times_gbnf(min_rest, max_rest));
        if (fixed == 0) {
            const uint32_t more = max_rest == unlimited ? unlimited : max_rest - 1;
            rest = fmt::format("{} (\",\" space {}){} space", item, item, times_gbnf(min_rest == 0 ? 0 : min_rest - 1, more));
            return "\"[\" space " + (min_rest == 0 ? "(" + rest + ")?" : rest) + " \"]\"";
        }
    }
    if (fixed == 0) return "\"[\" space \"]\"";
    for (uint32_t i = fixed; i-- > 0;) {
        const std::string item =
            rules.rule(prefix[i], fmt::format("{}/prefixItems/{}", place, i), fmt::format("{}-{}", name, i + 1), true);
        const std::string own = writer.new_name(fmt::format("{}-from-{}", name, i + 1)),
                          body = (i == 0 ? "" : "\",\" space ") + item + " " + rest;
        writer.define(own, i >= min ? "(" + body + ")?" : body);
        rest = own;
    }
    return "\"[\" space " + rest + " space \"]\"";
}

} // namespace tq::grammar
