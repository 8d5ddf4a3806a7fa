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
#include "model/text/grammar/interrupt.h"
#include "model/text/grammar/schema_values.h"
#include "model/text/unicode.h"
#include <algorithm>
#include <map>
#include <optional>
#include <unordered_map>
#include <unordered_set>

namespace tq::grammar {
namespace {

constexpr size_t max_name_bytes = 256;
constexpr size_t max_optional = 4000; // any of them may come next: little less than the ways that are followed

struct Property {
    std::string name;
    const SchemaJson* schema;
    bool required;
};

const SchemaJson any_schema = true, no_schema = false;

std::string json_text(const std::string& text) { return SchemaJson(text).dump(); }

// The names that `propertyNames` allows, where it lists them.
std::optional<std::vector<std::string>> listed_names(SchemaRules& rules, const SchemaJson& schema, const std::string& place,
                                                     uint32_t depth = 0) {
    constexpr uint32_t max_depth = 32;
    if (!schema.is_object() || depth > max_depth) return std::nullopt;
    if (schema.contains("$ref") || schema.contains("allOf"))
        return listed_names(rules, rules.resolved(schema, place), place, depth + 1);
    std::vector<std::string> names;
    const auto add = [&](const SchemaJson& name) {
        look_at_interrupt();
        if (name.is_string()) names.push_back(name.get<std::string>());
    };
    if (const auto value = schema.find("const"); value != schema.end()) return add(*value), names;
    if (const auto values = schema.find("enum"); values != schema.end() && values->is_array())
        return std::ranges::for_each(*values, add), names;
    for (const char* keyword : {"anyOf", "oneOf"})
        if (const auto choices = schema.find(keyword); choices != schema.end() && choices->is_array()) {
            for (const SchemaJson& choice : *choices) {
                const auto some = listed_names(rules, choice, place, depth + 1);
                if (!some) return std::nullopt;
                names.insert(names.end(), some->begin(), some->end());
            }
            return names;
        }
    return std::nullopt;
}

// The properties of a schema in the given order, by their names.
class Properties {
  public:
    Properties(SchemaRules& rules, const SchemaJson& schema, const std::string& place)
        : rules_(rules), place_(place), others_(member(schema, "additionalProperties")) {
        if (const SchemaJson* given = member(schema, "properties")) {
            if (!given->is_object()) refuse_schema(place, "'properties' must be an object");
            for (const auto& [name, value] : given->get_ref<const SchemaJson::object_t&>()) find_or_add(name, &value);
        }
        if (const SchemaJson* required = member(schema, "required")) add_required(*required);
        if (!others_ || *others_ == false) // others are not allowed: a member that has no value, either
            std::erase_if(all, [](const Property& one) { return !one.required && allows_nothing(*one.schema); });
        const bool counts = all.empty() && (member(schema, "minProperties") || member(schema, "maxProperties"));
        if (const SchemaJson* names = member(schema, "propertyNames"); names && !counts) keep_to(*names);
    }

    std::vector<Property> all;
    bool are_listed = false; // by propertyNames: there are no others

  private:
    static const SchemaJson* member(const SchemaJson& schema, const char* keyword) {
        const auto found = schema.find(keyword);
        return found == schema.end() ? nullptr : &*found;
    }

    Property& find_or_add(const std::string& name, const SchemaJson* schema) {
        look_at_interrupt();
        const auto [entry, is_new] = places_.try_emplace(name, all.size());
        if (is_new) all.push_back({name, schema, false});
        return all[entry->second];
    }

    // Names that are only required follow.
    void add_required(const SchemaJson& names) {
        if (names.is_boolean()) return; // draft 3's boolean belongs to the parent
        if (!names.is_array()) refuse_schema(place_, "'required' must be a list of names");
        const bool is_closed = others_ && *others_ == false;
        for (const SchemaJson& name : names) {
            if (!name.is_string()) refuse_schema(place_, "'required' must be a list of names");
            const size_t before = all.size();
            find_or_add(name.get_ref<const std::string&>(), others_ && !is_closed ? others_ : &any_schema).required = true;
            if (is_closed && all.size() > before)
                rules_.leave_out(place_, fmt::format("'{}' is required, but is no property", printable(all.back().name, 100)));
        }
    }

    // Names that are listed are properties, each of which may be there once.
    void keep_to(const SchemaJson& schema) {
        const auto names = listed_names(rules_, schema, place_);
        if (!names || names->size() > max_optional) return;
        are_listed = true;
        const std::unordered_set<std::string_view> allowed(names->begin(), names->end());
        std::erase_if(all, [&](const Property& one) {
            const bool excluded = !allowed.contains(one.name);
            if (excluded && one.required)
                rules_.leave_out(
                    place_, fmt::format("'{}' is required, but 'propertyNames' does not allow it", printable(one.name, 100)));
            return excluded && !one.required;
        });
        places_.clear();
        for (const Property& one : all) places_.emplace(one.name, places_.size());
        if (!others_ || *others_ != false)
            for (const std::string& name : *names) find_or_add(name, others_ ? others_ : &any_schema);
    }

    SchemaRules& rules_;
    const std::string& place_;
    const SchemaJson* const others_;
    std::unordered_map<std::string, size_t> places_;
};

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
std::string map_gbnf(SchemaRules& rules, const SchemaJson& schema, const std::string& member, const std::string& place) {
    const uint32_t min = schema_min(rules, schema, "minProperties", place), max = schema_max(schema, "maxProperties", place);
    GbnfWriter& writer = rules.writer();
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
        const std::string own = writer.new_name(name_below(name, "rest"));
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
    GbnfWriter& writer = rules.writer();
    const Properties read(rules, schema, place);
    const std::vector<Property>& properties = read.all;
    if (size_t(std::ranges::count(properties, false, &Property::required)) > max_optional) {
        rules.leave_out(place, fmt::format("more than {} properties that are not required are not supported", max_optional));
        return writer.json("object");
    }
    const auto others = schema.find("additionalProperties");
    const bool has_others = !read.are_listed && (others != schema.end() ? *others != false : !schema.contains("properties"));
    const std::string space = writer.json("space");
    if (!properties.empty())
        for (const char* keyword : {"minProperties", "maxProperties", "propertyNames"})
            if (schema.contains(keyword) && !(read.are_listed && keyword == std::string_view("propertyNames")))
                rules.leave_out(place, fmt::format("'{}' beside {} is not supported", keyword,
                                                   schema.contains("properties") ? "'properties'"
                                                   : schema.contains("required") ? "'required'"
                                                                                 : "a list of names in 'propertyNames'"));
    std::string other;
    if (has_others) {
        std::string key = other_names(properties, writer);
        if (schema.contains("propertyNames") && properties.empty()) {
            SchemaJson names = schema["propertyNames"];
            rules.pay(names);
            if (names.is_object() && !names.contains("type") && !names.contains("$ref")) names["type"] = "string";
            key = rules.rule(names, place_below(place, "propertyNames"), name_below(name, "name"), true);
        }
        const bool any = others == schema.end() || *others == true;
        other = writer.new_name(name_below(name, "other"));
        const std::string value =
            any ? writer.json("value")
                : rules.rule(*others, place_below(place, "additionalProperties"), name_below(name, "value"), true);
        writer.define(other, key + " \":\" space " + value);
    }
    if (properties.empty()) return has_others ? map_gbnf(rules, schema, other, place) : "\"{\" space \"}\"";
    std::vector<std::string> members;
    for (const Property& property : properties) {
        const std::string value = rules.rule(*property.schema, place_below(place_below(place, "properties"), property.name),
                                             name_below(name, property.name), true);
        members.push_back(gbnf_text(json_text(property.name) + ":") + " space " + value);
    }
    const bool all_optional = std::ranges::none_of(properties, &Property::required);
    const std::string body = rest_of_members(writer, properties, members, other, name);
    return "\"{\" space " + (all_optional ? "(" + body + " space)" : body + " space") + " \"}\"";
}

std::string array_gbnf(SchemaRules& rules, const SchemaJson& schema, const std::string& place, const std::string& name) {
    GbnfWriter& writer = rules.writer();
    const std::string space = writer.json("space");
    const uint32_t min = schema_min(rules, schema, "minItems", place);
    uint32_t max = schema_max(schema, "maxItems", place);
    if (max < min) refuse_schema(place, "'maxItems' is less than 'minItems'");
    static const SchemaJson no_prefix = SchemaJson::array();
    const auto member = [&](const char* keyword, const SchemaJson& otherwise) {
        return schema.contains(keyword) ? &schema[keyword] : &otherwise;
    };
    const SchemaJson *prefix_items = &no_prefix, *items = member("items", any_schema);
    if (items->is_array()) { // as before draft 2020-12
        prefix_items = items;
        items = member("additionalItems", any_schema);
    } else if (schema.contains("prefixItems")) {
        prefix_items = &schema["prefixItems"];
        if (!prefix_items->is_array()) refuse_schema(place, "'prefixItems' must be a list");
        items = member("items", no_schema); // as for properties: only listed ones are allowed
    }
    const SchemaJson& prefix = *prefix_items;
    const auto fixed = uint32_t(std::min<size_t>(prefix.size(), max));
    if (*items == false) max = std::min(max, fixed);
    if (max < min) refuse_schema(place, "'minItems' asks for more items than are allowed");
    std::string rest; // what follows the fixed items
    if (max > fixed) {
        const std::string item = rules.rule(*items, place_below(place, "items"), name_below(name, "item"), true);
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
        const std::string item = rules.rule(prefix[i], place_below(place, fmt::format("prefixItems/{}", i)),
                                            name_below(name, fmt::format("{}", i + 1)), true);
        const std::string own = writer.new_name(name_below(name, fmt::format("from-{}", i + 1))),
                          body = (i == 0 ? "" : "\",\" space ") + item + " " + rest;
        writer.define(own, i >= min ? "(" + body + ")?" : body);
        rest = own;
    }
    return "\"[\" space " + rest + " space \"]\"";
}

} // namespace tq::grammar
