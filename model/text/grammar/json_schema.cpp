// JSON schemas as grammars: expression() returns GBNF for a schema, and defines rules for parts that need names. A grammar cannot
// express all that a schema can. A strict conversion refuses such a schema, with the place and the keyword (leave_out());
// otherwise the keyword is left out, so that the grammar allows more than the schema, and a value within others whose schema is
// wrong may be any (within_values()). In some respects it allows less than the schema, so that answers end and rules stay few:
// members have one order, numbers a bounded number of digits, and a pattern beside bounds of a length some of its texts. The
// order of the tests in expression() is that of precedence: keywords that are null count as absent; `nullable` and `$ref` wrap
// the keywords beside them; allOf is merged to one schema before anything is written; anyOf and oneOf are alternatives, each
// merged with the keywords beside them; const, enum and type come last. oneOf is treated as anyOf: a grammar cannot say that
// exactly one alternative fits. A reference becomes a rule of its own, so that a schema may contain itself. That is allowed only
// within a value: depth_ counts the values around a place, and a reference that occurs again at the same depth would be
// left-recursive. Schemas come from requests. max_schemas and max_work bound what is done, as references that are merged
// multiply; max_nesting bounds the recursion.
#include "model/text/grammar/json_schema.h"
#include "base/error.h"
#include "base/json.h"
#include "base/printable.h"
#include "model/text/grammar/gbnf.h"
#include "model/text/grammar/gbnf_writer.h"
#include "model/text/grammar/interrupt.h"
#include "model/text/grammar/schema_merge.h"
#include "model/text/grammar/schema_names.h"
#include "model/text/grammar/schema_object.h"
#include "model/text/grammar/schema_parameters.h"
#include "model/text/grammar/schema_values.h"
#include <algorithm>
#include <bit>
#include <map>
#include <utility>

namespace tq::grammar {
namespace {

constexpr uint32_t max_nesting = 200;
constexpr uint32_t max_schemas = 20'000; // visited, those of references again wherever they are merged
constexpr size_t max_values = 1u << 18;  // of a schema, long texts as several
constexpr size_t max_work = 1u << 20;    // values that are copied, likewise
constexpr uint32_t max_choices = 4000;   // any of them may come next: little less than the ways that are followed
constexpr size_t max_left_out = 8;       // that are told

// Adds a value and all within it to `count`, long texts as several. Throws an Error with `what` ("it has") if `count` exceeds
// `max`.
void count_values(const SchemaJson& value, size_t& count, size_t max, const char* what) {
    const size_t work = value.is_string() ? 1 + value.get_ref<const std::string&>().size() / 32 : 1;
    look_at_interrupt(work);
    if ((count += work) > max) fail("the JSON schema is too large: {} more than {} values", what, max);
    if (value.is_array())
        for (const SchemaJson& part : value) count_values(part, count, max, what);
    if (value.is_object())
        for (const auto& [key, part] : value.get_ref<const SchemaJson::object_t&>())
            count += key.size() / 32, count_values(part, count, max, what);
}

class SchemaConverter final : public SchemaRules {
  public:
    SchemaConverter(const SchemaJson& root, bool is_strict, std::set<std::string>* left_out)
        : places_(root), root_(root), is_strict_(is_strict), left_out_(left_out) {}

    std::string convert() {
        writer_.new_name("root"); // so that no other rule takes it
        references_[""] = {"root", 0};
        const std::string body = expression(root_, "", "root");
        writer_.define("root", body);
        return writer_.text();
    }

    SchemaGrammar convert(const std::vector<std::string>& pointers, const std::vector<bool>& strict, ObjectForm form) {
        SchemaGrammar result;
        for (size_t i = 0; i < pointers.size(); ++i) {
            is_strict_ = strict.empty() || strict[i];
            form_ = form;
            const SchemaJson schema = {{"$ref", "#" + pointers[i]}};
            result.names.push_back(form == ObjectForm::json ? reference(schema, pointers[i], "ref")
                                                            : rule(schema, pointers[i], "ref-parameters", false));
        }
        result.gbnf = writer_.text();
        return result;
    }

    GbnfWriter& writer() override { return writer_; }
    SchemaPlaces& places() override { return places_; }

    void leave_out(const std::string& place, std::string_view what) override {
        if (is_strict_) refuse_schema(place, what);
        if (left_out_ && left_out_->size() < max_left_out)
            left_out_->insert(fmt::format("at {}: {}", place.empty() ? "its root" : printable(place, 200), what));
    }

    void pay(const SchemaJson& value) override { count_values(value, work_, max_work, "references and lists of schemas repeat"); }

    SchemaJson resolved(const SchemaJson& schema, const std::string& place) override {
        SchemaMerge merge(place, *this);
        gather(merge, schema, place, 0, "");
        return merge.take();
    }

    // A body that is the name of a rule already gets no rule of its own. Others do, so that a schema in the place of one value is
    // one word there, whatever alternatives it has.
    std::string rule(const SchemaJson& schema, const std::string& place, const std::string& name, bool reads) override {
        if (nesting_ == max_nesting)
            refuse_schema(place, "schemas are nested too deep, or '$ref' with keywords beside it is recursive");
        ++nesting_;
        depth_ += reads;
        const ObjectForm form = reads ? std::exchange(form_, ObjectForm::json) : form_;
        std::string own = within_values(place, [&] { return named(expression(schema, place, name), name); });
        form_ = form;
        depth_ -= reads;
        --nesting_;
        return own;
    }

  private:
    struct Reference {
        std::string name;
        uint32_t depth; // values around its first occurrence; unlimited once it is finished
    };

    // A value within which something is wrong is left free, if the schema is not strict.
    template <class Make> std::string within_values(const std::string& place, const Make& make) {
        const uint32_t depth = depth_, nesting = nesting_;
        try {
            return make();
        } catch (const Error& error) {
            depth_ = depth;
            nesting_ = nesting;
            if (is_strict_ || depth == 0) throw;
            leave_out(place, error.what());
        }
        return writer_.json("value");
    }

    std::string named(std::string body, const std::string& name) {
        const bool is_name =
            body.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-") == body.npos;
        if (is_name) return body;
        std::string own = writer_.new_name(name);
        writer_.define(own, body);
        return own;
    }

    std::string expression(const SchemaJson& schema, const std::string& place, const std::string& name) {
        look_at_interrupt();
        if (++visited_ > max_schemas)
            fail("the JSON schema is too large: it has more than {} parts, references included", max_schemas);
        if (schema == true)
            return form_ == ObjectForm::json ? writer_.json("value") : parameters(SchemaJson::object(), place, name);
        if (schema == false) return leave_out(place, "false allows no value"), writer_.json("value");
        if (!schema.is_object()) refuse_schema(place, "a schema must be an object, true or false");
        bool has_null = false;
        for (const auto& [keyword, value] : schema.get_ref<const SchemaJson::object_t&>()) {
            look_at_interrupt();
            if (is_null_keyword(keyword, value))
                has_null = true;
            else
                is_followed(*this, keyword, value, place);
        }
        if (has_null) return expression(without(schema, "", place), place, name);
        if (const auto nullable = schema.find("nullable"); nullable != schema.end()) {
            const std::string value = rule(without(schema, "nullable", place), place, name_below(name, "value"), false);
            return *nullable == true && form_ == ObjectForm::json ? value + " | " + writer_.json("null") : value;
        }
        if (schema.contains("$ref"))
            return form_ == ObjectForm::json ? reference(schema, place, name) : merged_expression(schema, place, name);
        if (schema.contains("allOf")) return expression(resolved(schema, place), place, name);
        for (const char* keyword : {"anyOf", "oneOf"})
            if (schema.contains(keyword)) return any_of(schema, keyword, place, name);
        if (form_ == ObjectForm::parameters) return parameters(schema, place, name);
        if (const auto value = schema.find("const"); value != schema.end()) return gbnf_text(json_value_text(*value, place));
        if (schema.contains("enum")) return any_text_gbnf(enumeration(schema, place));
        return typed(schema, place, name);
    }

    // The keywords that are followed, but one.
    SchemaJson without(const SchemaJson& schema, const char* keyword, const std::string& place) {
        SchemaJson rest = SchemaJson::object();
        auto& members = rest.get_ref<SchemaJson::object_t&>();
        for (const auto& [key, value] : schema.get_ref<const SchemaJson::object_t&>()) {
            if (key == keyword || is_null_keyword(key, value) || !is_followed(*this, key, value, place)) continue;
            pay(value);
            members.emplace_back(key, value);
        }
        return rest;
    }

    static std::string json_value_text(const SchemaJson& value, const std::string& place) {
        look_at_interrupt();
        try {
            return value.dump();
        } catch (const nlohmann::json::exception&) {
            refuse_schema(place, "a value is not valid UTF-8");
        }
    }

    std::vector<std::string> enumeration(const SchemaJson& schema, const std::string& place) {
        const SchemaJson& values = schema["enum"];
        if (!values.is_array()) refuse_schema(place, "'enum' must be a list");
        const uint32_t types = schema.contains("type") ? type_bits(schema["type"], place) : ~0u;
        std::vector<std::string> texts;
        for (const SchemaJson& value : values)
            if (types & types_of_value(value)) texts.push_back(json_value_text(value, place));
        if (texts.empty()) refuse_schema(place, "'enum' has no value of the schema's type");
        return texts;
    }

    const SchemaJson& pointed_at(const SchemaJson& reference, const std::string& place) {
        if (!reference.is_string()) refuse_schema(place, "'$ref' must be a text");
        const auto& text = reference.get_ref<const std::string&>();
        if (!text.starts_with('#'))
            return leave_out(place, fmt::format("'$ref' leads to another document: {}", printable(text, 200))), unknown_schema;
        const SchemaJson* found = places_.find(std::string_view(text).substr(1));
        if (!found) refuse_schema(place, fmt::format("'$ref' leads nowhere: {}", printable(text, 200)));
        return *found;
    }

    // Returns a rule for the target of a reference, so that it can refer to itself.
    std::string reference(const SchemaJson& schema, const std::string& place, const std::string& name) {
        const SchemaJson& target = pointed_at(schema["$ref"], place);
        if (!without(schema, "$ref", place).empty()) return merged_expression(schema, place, name);
        const std::string pointer = schema["$ref"].get<std::string>().substr(1);
        if (const auto known = references_.find(pointer); known != references_.end()) {
            if (known->second.depth == depth_) refuse_schema(place, "'$ref' leads back to itself before there is a value");
            return known->second.name;
        }
        const std::string own = writer_.new_name(name_below("ref", std::string_view(pointer).substr(pointer.rfind('/') + 1)));
        if (nesting_ == max_nesting) refuse_schema(place, "schemas are nested too deep");
        references_[pointer] = {own, depth_};
        ++nesting_;
        const std::string at = place_below("", std::string_view(pointer).substr(pointer.starts_with('/')));
        writer_.define(own, within_values(at, [&] { return expression(target, at, own); }));
        --nesting_;
        references_[pointer].depth = unlimited;
        return own;
    }

    std::string merged_expression(const SchemaJson& schema, const std::string& place, const std::string& name) {
        if (nesting_ == max_nesting) refuse_schema(place, "'$ref' with keywords beside it leads back to itself");
        ++nesting_;
        std::string body = expression(resolved(schema, place), place, name);
        --nesting_;
        return body;
    }

    // Adds the schema, and what it refers to, to those that are merged.
    void gather(SchemaMerge& merge, const SchemaJson& schema, const std::string& place, uint32_t depth,
                std::string_view without) {
        look_at_interrupt();
        if (++visited_ > max_schemas || depth > max_nesting)
            refuse_schema(place, "allOf or '$ref' with keywords beside it refers to too many schemas, or to itself");
        if (!schema.is_object()) return merge.add(schema);
        if (const auto reference = schema.find("$ref"); reference != schema.end() && !reference->is_null())
            gather(merge, pointed_at(*reference, place), place, depth + 1, "");
        merge.add(schema, without);
        const auto parts = schema.find("allOf");
        if (parts == schema.end() || parts->is_null()) return;
        if (!parts->is_array()) refuse_schema(place, "'allOf' must be a list");
        for (const SchemaJson& part : *parts) gather(merge, part, place, depth + 1, "");
    }

    // The texts of a choice that is a list of values; empty if it is not.
    std::vector<std::string> values_of(const SchemaJson& choice, const std::string& place) {
        if (form_ != ObjectForm::json || !choice.is_object() || !(choice.contains("const") || choice.contains("enum"))) return {};
        for (const auto& [keyword, value] : choice.get_ref<const SchemaJson::object_t&>())
            if (!is_annotation(keyword) && keyword != "type" && keyword != "const" && keyword != "enum") return {};
        if (const auto value = choice.find("const"); value != choice.end()) return {json_value_text(*value, place)};
        return enumeration(choice, place);
    }

    // Whether nothing of the schema can be written.
    bool is_out(const SchemaJson& schema, const std::string& place) const {
        const bool has_type = form_ == ObjectForm::parameters && schema.is_object() && schema.contains("type");
        return allows_nothing(schema) || (has_type && !(type_bits(schema["type"], place) & types_of_value(SchemaJson::object())));
    }

    std::string parameters(const SchemaJson& schema, const std::string& place, const std::string& name) {
        if (is_out(schema, place)) refuse_schema(place, "the arguments of a tool are an object");
        return parameters_gbnf(*this, schema, place, name);
    }

    // Alternatives that allow nothing are left out. If all allow nothing, they are converted all the same, so that leave_out()
    // hears of it. Values are one list, however many choices they are.
    std::string any_of(const SchemaJson& schema, const char* keyword, const std::string& place, const std::string& name) {
        const SchemaJson& choices = schema[keyword];
        if (!choices.is_array() || choices.empty()) refuse_schema(place, fmt::format("'{}' must be a list of schemas", keyword));
        const SchemaJson base = without(schema, keyword, place);
        const bool none = std::ranges::all_of(choices, [&](const SchemaJson& one) { return is_out(one, place); });
        std::vector<std::string> rules, values;
        for (size_t i = 0; i < choices.size(); ++i) {
            if (!none && is_out(choices[i], place)) continue;
            if (rules.size() == max_choices) {
                leave_out(place, fmt::format("more than {} choices of '{}' are not supported", max_choices, keyword));
                return writer_.json("value");
            }
            const std::string at = place_below(place, fmt::format("{}/{}", keyword, i)), own = fmt::format("{}-{}", name, i + 1);
            if (base.empty()) {
                const std::vector<std::string> some = values_of(choices[i], at);
                values.insert(values.end(), some.begin(), some.end());
                if (some.empty()) rules.push_back(rule(choices[i], at, own, false));
            } else {
                SchemaMerge merge(at, *this);
                merge.add(base);
                gather(merge, choices[i], at, 0, "");
                rules.push_back(rule(merge.take(), at, own, false));
            }
        }
        std::string out = values.empty() ? "" : any_text_gbnf(std::move(values));
        for (const std::string& one : rules) (out += out.empty() ? "" : " | ") += one;
        return out;
    }

    std::string typed(const SchemaJson& schema, const std::string& place, const std::string& name) {
        const auto given = schema.find("type");
        if (given == schema.end()) return of_type(schema, implied_type(schema), place, name);
        const uint32_t types = type_bits(*given, place);
        if (types == 0) refuse_schema(place, "no type is left");
        if (std::has_single_bit(types)) return of_type(schema, type_names[std::countr_zero(types)], place, name);
        std::string out;
        for (size_t i = 0; i < std::size(type_names); ++i)
            if (types & type_bit(i))
                (out += out.empty() ? "" : " | ") += named(of_type(schema, type_names[i], place, name), name);
        return out;
    }

    std::string of_type(const SchemaJson& schema, std::string_view type, const std::string& place, const std::string& name) {
        if (type == "object") return object_gbnf(*this, schema, place, name);
        if (type == "array") return array_gbnf(*this, schema, place, name);
        if (type == "string") return string_gbnf(*this, schema, place);
        if (type == "integer" || type == "number") return number_gbnf(*this, schema, place, type == "integer");
        return writer_.json(type.empty() ? "value" : type);
    }

    SchemaPlaces places_;
    const SchemaJson& root_;
    bool is_strict_ = true;
    ObjectForm form_ = ObjectForm::json;
    std::set<std::string>* const left_out_;
    GbnfWriter writer_;
    std::map<std::string, Reference> references_; // by JSON pointer
    uint32_t depth_ = 0, nesting_ = 0, visited_ = 0;
    size_t work_ = 0;
};

} // namespace

std::string json_schema_gbnf(const SchemaJson& schema, bool strict, std::set<std::string>* left_out) {
    size_t values = 0;
    count_values(schema, values, max_values, "long texts counted as several, it has");
    SchemaJson placed = schema;
    place_references(placed);
    return SchemaConverter(placed, strict, left_out).convert();
}

SchemaGrammar json_schema_rules(const SchemaJson& document, const std::vector<std::string>& pointers,
                                const std::vector<bool>& strict, ObjectForm form) {
    return SchemaConverter(document, true, nullptr).convert(pointers, strict, form);
}

std::string json_schema_gbnf(std::string_view schema, bool strict) {
    if (schema.size() > max_gbnf_bytes)
        fail("the JSON schema has {} bytes: at most {} are supported", schema.size(), max_gbnf_bytes);
    return json_schema_gbnf(
        build_json<SchemaJson>(schema, "the JSON schema", {.max_depth = 100, .max_values = max_values, .lone_surrogates = true}),
        strict);
}

std::string json_object_gbnf() {
    GbnfWriter writer;
    writer.define(writer.new_name("root"), "object");
    writer.json("object");
    return writer.text();
}

} // namespace tq::grammar
