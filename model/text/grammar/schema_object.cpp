// Objects and arrays of a schema as grammars.
// Members come in the order in which the schema lists its properties; any order would need as many rules as there are
// permutations. Each property that is not required may be missing. Rules are built from the last property to the first: after[i]
// has the members from i on after another member, and therefore begins with a comma; `begin` has them if none is before. So each
// property needs two rules, however many may be missing. In one respect this deviates from JSON Schema, as llama.cpp and OpenAI
// do: if additionalProperties is missing, the properties that are listed are all. A model that may add any member does not stop.
#include "model/text/grammar/schema_object.h"
#include "base/error.h"
#include "model/text/grammar/schema_properties.h"
#include "model/text/grammar/schema_values.h"
#include <algorithm>

namespace tq::grammar {
namespace {

const SchemaJson any_schema = true, no_schema = false;

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
    Properties read(rules, schema, place);
    const std::vector<Property>& properties = read.all;
    if (size_t(std::ranges::count(properties, false, &Property::required)) > max_optional) {
        rules.leave_out(place, fmt::format("more than {} properties that are not required are not supported", max_optional));
        return writer.json("object");
    }
    const std::string space = writer.json("space");
    std::string other;
    for (const OtherMembers& some : read.others(NameForm::quoted, name)) {
        const std::string value =
            *some.values == true ? writer.json("value") : rules.rule(*some.values, some.place, name_below(name, "value"), true);
        (other += other.empty() ? "" : " | ") += some.names + " \":\" space " + value;
    }
    if (!other.empty()) {
        const std::string own = writer.new_name(name_below(name, "other"));
        writer.define(own, other);
        other = own;
    }
    if (properties.empty()) return !other.empty() ? map_gbnf(rules, schema, other, place) : "\"{\" space \"}\"";
    std::vector<std::string> members;
    for (const Property& property : properties) {
        const std::string value = rules.rule(*property.schema, place_below(place_below(place, "properties"), property.name),
                                             name_below(name, property.name), true);
        members.push_back(gbnf_text(SchemaJson(property.name).dump() + ":") + " space " + value);
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
    const SchemaJson *prefix_items = &no_prefix, *items = member("items", *member("unevaluatedItems", any_schema));
    if (items->is_array()) { // as before draft 2020-12
        prefix_items = items;
        items = member("additionalItems", any_schema);
    } else if (schema.contains("prefixItems")) {
        prefix_items = &schema["prefixItems"];
        if (!prefix_items->is_array()) refuse_schema(place, "'prefixItems' must be a list");
        items = member("items", *member("unevaluatedItems", no_schema)); // as for properties: only listed ones are allowed
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
