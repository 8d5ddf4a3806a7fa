// Names of members.
// If others are allowed beside properties, their names must be none of those listed, or a member could be there twice, once with
// a value of any type. A grammar has no "but not", so other_name() writes the complement: a tree of the names, from which another
// name departs at some character, or in which it ends early. Beside patterns, and where names have no quotes, the complement is
// an automaton (regex_product_gbnf()).
#include "model/text/grammar/schema_properties.h"
#include "base/error.h"
#include "base/printable.h"
#include "model/text/grammar/interrupt.h"
#include "model/text/grammar/regex_product.h"
#include "model/text/unicode.h"
#include <algorithm>
#include <map>
#include <unordered_set>

namespace tq::grammar {
namespace {

constexpr size_t max_name_bytes = 256, max_patterns = 64;

const SchemaJson any_member = true;

// Whether a schema, or one within it, describes a member that is not in `known`.
bool describes_others(const SchemaJson& schema, const std::unordered_map<std::string, size_t>& known) {
    look_at_interrupt();
    if (schema.is_array())
        return std::ranges::any_of(schema, [&](const SchemaJson& one) { return describes_others(one, known); });
    if (!schema.is_object()) return false;
    return std::ranges::any_of(schema.get_ref<const SchemaJson::object_t&>(), [&](const auto& entry) {
        const auto& [keyword, value] = entry;
        if (keyword == "properties" && value.is_object())
            for (const auto& [name, inner] : value.template get_ref<const SchemaJson::object_t&>())
                if (!known.contains(name)) return true;
        const bool opens = keyword == "additionalProperties" || keyword == "unevaluatedProperties";
        return keyword == "$ref" || keyword == "patternProperties" || (opens && value != false) || describes_others(value, known);
    });
}

// A regex of these names.
Regex names_regex(const std::vector<Property>& properties) {
    Regex names{.kind = Regex::Kind::choice, .of = {}};
    for (const Property& property : properties) {
        Regex name{.kind = Regex::Kind::sequence, .of = {}};
        for (size_t i = 0; i < property.name.size();) {
            const auto step = step_utf8(property.name, i);
            name.of.push_back(
                {.kind = Regex::Kind::chars,
                 .ranges = std::make_shared<const std::vector<CharRange>>(1, CharRange{step.code_point, step.code_point})});
            i += step.length;
        }
        names.of.push_back(std::move(name));
    }
    return names;
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
        const std::string text = SchemaJson(property.name).dump();
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

} // namespace

std::optional<std::vector<std::string>> listed_names(SchemaRules& rules, const SchemaJson& schema, const std::string& place,
                                                     uint32_t depth) {
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

Properties::Properties(SchemaRules& rules, const SchemaJson& schema, const std::string& place)
    : rules_(rules), schema_(schema), place_(place), others_(member("additionalProperties")) {
    if (!others_) others_ = member("unevaluatedProperties");
    if (const SchemaJson* given = member("properties")) {
        if (!given->is_object()) refuse_schema(place, "'properties' must be an object");
        for (const auto& [name, value] : given->get_ref<const SchemaJson::object_t&>()) find_or_add(name, &value);
    }
    read_patterns();
    if (const SchemaJson* required = member("required")) add_required(*required);
    if (!others_ || *others_ == false) // others are not allowed: a member that has no value, either
        std::erase_if(all, [](const Property& one) { return !one.required && allows_nothing(*one.schema); });
    const bool counts = all.empty() && (member("minProperties") || member("maxProperties"));
    if (const SchemaJson* names = member("propertyNames"); names && !counts) keep_to(*names);
    leave_out_beside();
}

const SchemaJson* Properties::member(const char* keyword) const {
    const auto found = schema_.find(keyword);
    return found == schema_.end() ? nullptr : &*found;
}

Property& Properties::find_or_add(const std::string& name, const SchemaJson* schema) {
    look_at_interrupt();
    const auto [entry, is_new] = places_.try_emplace(name, all.size());
    if (is_new) all.push_back({name, schema, false});
    return all[entry->second];
}

// Names that are only required follow.
void Properties::add_required(const SchemaJson& names) {
    if (names.is_boolean()) return; // draft 3's boolean belongs to the parent
    if (!names.is_array()) refuse_schema(place_, "'required' must be a list of names");
    const bool is_closed = others_ && *others_ == false;
    for (const SchemaJson& name : names) {
        if (!name.is_string()) refuse_schema(place_, "'required' must be a list of names");
        const size_t before = all.size();
        find_or_add(name.get_ref<const std::string&>(), others_ && !is_closed ? others_ : &any_member).required = true;
        if ((is_closed || !patterns_.empty()) && all.size() > before)
            rules_.leave_out(place_, fmt::format("'{}' is required, but is no property", printable(all.back().name, 100)));
    }
}

// Names that are listed are properties, each of which may be there once.
void Properties::keep_to(const SchemaJson& schema) {
    const auto names = listed_names(rules_, schema, place_);
    if (!names || names->size() > max_optional) return;
    are_listed = true;
    const std::unordered_set<std::string_view> allowed(names->begin(), names->end());
    std::erase_if(all, [&](const Property& one) {
        const bool excluded = !allowed.contains(one.name);
        if (excluded && one.required)
            rules_.leave_out(place_,
                             fmt::format("'{}' is required, but 'propertyNames' does not allow it", printable(one.name, 100)));
        return excluded && !one.required;
    });
    places_.clear();
    for (const Property& one : all) places_.emplace(one.name, places_.size());
    if (!others_ || *others_ != false)
        for (const std::string& name : *names) find_or_add(name, others_ ? others_ : &any_member);
}

void Properties::read_patterns() {
    const SchemaJson* given = member("patternProperties");
    if (!given) return;
    if (!given->is_object()) refuse_schema(place_, "'patternProperties' must be an object");
    const std::string place = place_below(place_, "patternProperties");
    if (given->size() > max_patterns) { // the names of each are those that match none of the others
        rules_.leave_out(place, fmt::format("it has {} patterns, of which {} are supported", given->size(), max_patterns));
        lost_pattern_ = true;
        return;
    }
    for (const auto& [pattern, values] : given->get_ref<const SchemaJson::object_t&>()) {
        look_at_interrupt();
        if (values == false) continue;
        const std::string at = place_below(place, pattern);
        try {
            patterns_.push_back({parse_regex(pattern, rules_.writer()), &values, at});
        } catch (const Error& error) {
            rules_.leave_out(at, error.what());
            lost_pattern_ = true;
        }
    }
}

// Keywords that count or name members go unsaid beside properties.
void Properties::leave_out_beside() {
    if (all.empty() && patterns_.empty()) return;
    for (const char* keyword : {"minProperties", "maxProperties", "propertyNames"}) {
        const bool is_name = keyword == std::string_view("propertyNames");
        if (!member(keyword) || (is_name ? are_listed : all.empty())) continue;
        rules_.leave_out(place_, fmt::format("'{}' beside {} is not supported", keyword,
                                             member("properties")          ? "'properties'"
                                             : member("required")          ? "'required'"
                                             : member("patternProperties") ? "'patternProperties'"
                                                                           : "a list of names in 'propertyNames'"));
    }
}

// Whether a keyword that was left out describes other members.
bool Properties::is_open() const {
    const auto& members = schema_.get_ref<const SchemaJson::object_t&>();
    return std::ranges::any_of(members, [&](const auto& entry) {
        return may_add_members(entry.first) && (entry.first.starts_with('$') || describes_others(entry.second, places_));
    });
}

// Returns an expression for names that match `parts`, but none that is listed and none of another pattern. Returns nullopt if
// there is none, or a grammar cannot tell.
std::optional<std::string> Properties::names_of(std::vector<RegexPart> parts, size_t pattern, NameForm form) {
    for (size_t i = 0; i < patterns_.size(); ++i) {
        if (i == pattern) continue;
        if (patterns_[i].parts.size() > 1) return std::nullopt;
        parts.push_back({patterns_[i].parts[0].regex, !patterns_[i].parts[0].negated});
    }
    if (!all.empty()) parts.push_back({names_regex(all), true});
    if (form == NameForm::bare) parts.push_back(parse_regex(R"(^[^<>"\\\x00-\x1f]+$)", rules_.writer()).front());
    if (parts.size() > 1 || parts[0].negated) return regex_product_gbnf(rules_.writer(), parts, 0, unlimited);
    return regex_tree_gbnf(parts[0].regex);
}

// Names that match no pattern.
std::string Properties::any_name(NameForm form, const std::string& name) {
    const bool is_quoted = form == NameForm::quoted;
    if (const SchemaJson* given = member("propertyNames"); given && all.empty() && patterns_.empty() && is_quoted) {
        SchemaJson names = *given;
        rules_.pay(names);
        if (names.is_object() && !names.contains("type") && !names.contains("$ref")) names["type"] = "string";
        return rules_.rule(names, place_below(place_, "propertyNames"), name_below(name, "name"), true);
    }
    if (patterns_.empty() && is_quoted) return other_names(all, rules_.writer());
    if (const auto found = names_of(parse_regex(R"(^[^]*$)", rules_.writer()), patterns_.size(), form))
        return is_quoted ? "\"\\\"\" " + *found + " \"\\\"\"" : *found;
    rules_.leave_out(place_, "a grammar cannot tell the names of other members from those that are described");
    return is_quoted ? rules_.writer().json("string") : R"([^<>"\\\x00-\x1F]+)";
}

std::vector<OtherMembers> Properties::others(NameForm form, const std::string& name) {
    std::vector<OtherMembers> found;
    if (are_listed) return found;
    for (size_t i = 0; i < patterns_.size(); ++i) {
        if (const auto names = names_of(patterns_[i].parts, i, form)) {
            found.push_back({form == NameForm::quoted ? "\"\\\"\" " + *names + " \"\\\"\"" : *names, patterns_[i].values,
                             patterns_[i].place});
        } else {
            rules_.leave_out(patterns_[i].place, "a grammar cannot tell its names from those that are described elsewhere");
            lost_pattern_ = true;
        }
    }
    const bool is_closed = others_ && *others_ == false, adds = is_open();
    const bool are_evaluated = adds && !member("additionalProperties"); // by what adds them
    const bool is_map = !others_ && !member("properties") && !member("patternProperties");
    if (!(lost_pattern_ || are_evaluated || is_map || (others_ && !is_closed))) return found;
    const bool any = lost_pattern_ || are_evaluated || !others_;
    found.push_back({any_name(form, name), any ? &any_member : others_, place_below(place_, "additionalProperties")});
    return found;
}

} // namespace tq::grammar
