// allOf, and keywords beside $ref: schemas become one that allows what all of them allow, keyword by keyword. Types and enums are
// intersected, bounds are the stricter ones, names that are required add up, patterns become a list, and a property that several
// describe gets an allOf of its own, which is merged when the property is written. If two values of a keyword cannot be merged
// (two known formats), the first stays and leave_out() decides whether that is an error. Annotations say nothing about values and
// are never merged.
// Requests choose how many schemas there are, and how long. Members of SchemaJson are found one after the other, so names are
// looked up in tables.
#include "model/text/grammar/schema_merge.h"
#include "base/error.h"
#include "base/printable.h"
#include "model/text/grammar/interrupt.h"
#include "model/text/grammar/schema_values.h"
#include <algorithm>
#include <cmath>

namespace tq::grammar {
namespace {

using Members = SchemaJson::object_t;

Members& members_of(SchemaJson& value) { return value.get_ref<Members&>(); }
const Members& members_of(const SchemaJson& value) { return value.get_ref<const Members&>(); }

// A value's text; those of equal values are equal.
std::string key_of(const SchemaJson& value) {
    constexpr double exact = 9007199254740992; // 2^53
    if (value.is_number() && std::fabs(value.get<double>()) < exact) return fmt::format("{}", value.get<double>());
    return value.dump(-1, ' ', false, SchemaJson::error_handler_t::replace);
}

// Each value once.
SchemaJson values_in_both(const SchemaJson& a, const SchemaJson& b) {
    std::unordered_set<std::string> of_b;
    for (const SchemaJson& value : b) look_at_interrupt(), of_b.insert(key_of(value));
    SchemaJson both = SchemaJson::array();
    for (const SchemaJson& value : a) {
        look_at_interrupt();
        if (of_b.erase(key_of(value)) > 0) both.push_back(value);
    }
    return both;
}

// An integer is a number too.
SchemaJson types_in_both(const SchemaJson& a, const SchemaJson& b, const std::string& place) {
    const uint32_t number = types_of_value(0.5), integer = types_of_value(1) & ~number;
    const auto all = [&](const SchemaJson& type) {
        const uint32_t bits = type_bits(type, place);
        return bits & number ? bits | integer : bits;
    };
    uint32_t both = all(a) & all(b);
    if (both & number) both &= ~integer;
    SchemaJson names = SchemaJson::array();
    for (size_t i = 0; i < std::size(type_names); ++i)
        if (both & type_bit(i)) names.push_back(type_names[i]);
    return names;
}

// `all` becomes a schema of what both allow: a list that grows.
void join(SchemaJson& all, const SchemaJson& schema) {
    if (!all.is_object() || all.size() != 1 || !all.contains("allOf") || !all["allOf"].is_array()) {
        SchemaJson list = SchemaJson::array();
        list.push_back(std::move(all));
        all = SchemaJson::object();
        all["allOf"] = std::move(list);
    }
    all["allOf"].push_back(schema);
}

void join_patterns(SchemaJson& all, const SchemaJson& pattern) {
    if (!all.is_array()) {
        SchemaJson list = SchemaJson::array();
        list.push_back(std::move(all));
        all = std::move(list);
    }
    for (const SchemaJson& one : pattern.is_array() ? pattern : SchemaJson::array({pattern})) all.push_back(one);
}

bool is_unknown_format(const SchemaJson& format) {
    return format.is_string() && !is_known_format(format.get_ref<const std::string&>());
}

} // namespace

void SchemaMerge::add(const SchemaJson& part, std::string_view without) {
    if (part == true) return;
    if (!part.is_object()) refuse_schema(place_, "allOf has a part that is not an object, or allows nothing");
    for (const auto& [keyword, value] : members_of(part)) {
        look_at_interrupt();
        if (keyword == without || keyword == "$ref" || keyword == "allOf" || is_null_keyword(keyword, value)) continue;
        if (is_followed(rules_, keyword, value, place_)) add_keyword(keyword, value);
    }
}

void SchemaMerge::add_keyword(const std::string& keyword, const SchemaJson& value) {
    rules_.pay(value);
    const auto found = all_.find(keyword);
    if (found == all_.end()) {
        all_[keyword] = value;
        return;
    }
    SchemaJson& all = *found;
    if (all == value || merge_lists(keyword, all, value)) return;
    const bool numbers = all.is_number() && value.is_number();
    if (keyword == "type") {
        all = types_in_both(all, value, place_);
    } else if (numbers && (keyword.starts_with("min") || keyword == "exclusiveMinimum")) {
        all = std::max(all, value);
    } else if (numbers && (keyword.starts_with("max") || keyword == "exclusiveMaximum")) {
        all = std::min(all, value);
    } else if (keyword == "additionalProperties" || keyword == "unevaluatedProperties" || keyword == "items") {
        if (all == true || value == false)
            all = value;
        else if (value != true && all != false)
            join(all, value);
    } else if (may_add_members(keyword)) {
        join(all, value);
    } else if (keyword == "pattern") {
        join_patterns(all, value);
    } else if (keyword == "format" && (is_unknown_format(all) || is_unknown_format(value))) {
        if (is_unknown_format(all)) all = value;
    } else {
        rules_.leave_out(place_, fmt::format("the keyword '{}' has several values, of allOf or beside it, which cannot be merged",
                                             printable(keyword)));
    }
}

// Returns false for other keywords.
bool SchemaMerge::merge_lists(const std::string& keyword, SchemaJson& all, const SchemaJson& value) {
    if (keyword == "properties" && all.is_object() && value.is_object())
        merge_properties(properties_, all, value);
    else if (keyword == "patternProperties" && all.is_object() && value.is_object())
        merge_properties(patterns_, all, value);
    else if (keyword == "required" && all.is_array() && value.is_array())
        merge_required(all, value);
    else if (keyword == "enum" && all.is_array() && value.is_array())
        all = values_in_both(all, value);
    else
        return false;
    return true;
}

void SchemaMerge::merge_properties(Names& known, SchemaJson& all, const SchemaJson& value) {
    Members& members = members_of(all);
    if (known.empty())
        for (const auto& [name, schema] : members) known.emplace(name, known.size());
    for (const auto& [name, schema] : members_of(value)) {
        look_at_interrupt();
        const auto [entry, is_new] = known.try_emplace(name, members.size());
        if (is_new)
            members.emplace_back(name, schema);
        else if (SchemaJson& other = (members.begin() + ptrdiff_t(entry->second))->second; other != schema)
            join(other, schema);
    }
}

void SchemaMerge::merge_required(SchemaJson& all, const SchemaJson& value) {
    const auto is_new = [&](const SchemaJson& name) {
        look_at_interrupt();
        return !name.is_string() || required_.insert(name.get_ref<const std::string&>()).second;
    };
    if (required_.empty()) std::ranges::for_each(all, is_new);
    for (const SchemaJson& name : value)
        if (is_new(name)) all.push_back(name);
}

} // namespace tq::grammar
