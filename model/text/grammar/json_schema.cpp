// JSON schemas as grammars: expression() returns GBNF for a schema, and defines rules for parts that need names. A grammar cannot
// express all that a schema can. A strict conversion refuses such a schema, with the place and the keyword (leave_out());
// otherwise the keyword is left out, so that the grammar allows more than the schema. In some respects it allows less than the
// schema, so that answers end and rules stay few: members have one order, numbers a bounded number of digits, and a pattern
// beside bounds of a length some of its texts. The order of the tests in expression() is that of precedence: keywords that are
// null count as absent; `nullable` and `$ref` wrap the keywords beside them; allOf is merged to one schema before anything is
// written; anyOf and oneOf are alternatives, each merged with the keywords beside them; const, enum and type come last. oneOf is
// treated as anyOf: a grammar cannot say that exactly one alternative fits. A reference becomes a rule of its own, so that a
// schema may contain itself. That is allowed only within a value: depth_ counts the values around a place, and a reference that
// occurs again at the same depth would be left-recursive. Schemas come from requests. max_schemas bounds the work, as references
// that are merged multiply; max_nesting bounds the recursion.
#include "model/text/grammar/json_schema.h"
#include "base/error.h"
#include "base/json.h"
#include "base/printable.h"
#include "model/text/grammar/gbnf.h"
#include "model/text/grammar/gbnf_writer.h"
#include "model/text/grammar/interrupt.h"
#include "model/text/grammar/schema_names.h"
#include "model/text/grammar/schema_object.h"
#include "model/text/grammar/schema_values.h"
#include <algorithm>
#include <charconv>
#include <map>

namespace tq::grammar {
namespace {

constexpr uint32_t max_nesting = 200;
constexpr uint32_t max_schemas = 20'000; // visited, those of references again wherever they are merged

constexpr std::string_view type_names[] = {"object", "array", "string", "number", "integer", "boolean", "null"};

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
    {"unevaluatedProperties", "object"},
};

constexpr std::string_view untyped_keywords[] = {"type", "enum", "const", "anyOf", "oneOf", "allOf", "$ref", "nullable"};

class SchemaConverter final : public SchemaRules {
  public:
    SchemaConverter(const SchemaJson& root, bool is_strict) : root_(root), is_strict_(is_strict) {}

    std::string convert() {
        writer_.new_name("root"); // so that no other rule takes it
        references_[""] = {"root", 0};
        const std::string body = expression(root_, "", "root");
        writer_.define("root", body);
        return writer_.text();
    }

    SchemaGrammar convert(const std::vector<std::string>& pointers, const std::vector<bool>& strict) {
        SchemaGrammar result;
        for (size_t i = 0; i < pointers.size(); ++i) {
            is_strict_ = strict.empty() || strict[i];
            result.names.push_back(reference({{"$ref", "#" + pointers[i]}}, pointers[i], "ref"));
        }
        result.gbnf = writer_.text();
        return result;
    }

    GbnfWriter& writer() override { return writer_; }

    void leave_out(const std::string& place, std::string_view what) const override {
        if (is_strict_) refuse_schema(place, what);
    }

    // A body that is the name of a rule already gets no rule of its own. Others do, so that a schema in the place of one value is
    // one word there, whatever alternatives it has.
    std::string rule(const SchemaJson& schema, const std::string& place, const std::string& name, bool reads) override {
        if (++nesting_ > max_nesting)
            refuse_schema(place, "schemas are nested too deep, or '$ref' with keywords beside it is recursive");
        depth_ += reads;
        const std::string body = expression(schema, place, name);
        depth_ -= reads;
        --nesting_;
        const bool is_name =
            body.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-") == body.npos;
        if (is_name) return body;
        const std::string own = writer_.new_name(name);
        writer_.define(own, body);
        return own;
    }

  private:
    struct Reference {
        std::string name;
        uint32_t depth; // values around its first occurrence; unlimited once it is finished
    };

    void check_keywords(const SchemaJson& schema, const std::string& place) const {
        for (const auto& [keyword, value] : schema.items()) {
            if (is_annotation(keyword) || std::ranges::find(untyped_keywords, keyword) != std::end(untyped_keywords)) continue;
            const auto known = std::ranges::find(typed_keywords, keyword, [](const auto& k) { return k.first; });
            const bool unsupported = (keyword == "uniqueItems" || keyword == "unevaluatedProperties") && value != false;
            if (known == std::end(typed_keywords) || unsupported)
                leave_out(place, fmt::format("the keyword '{}' is not supported", printable(keyword)));
        }
    }

    std::string expression(const SchemaJson& schema, const std::string& place, const std::string& name) {
        look_at_interrupt();
        if (++visited_ > max_schemas)
            fail("the JSON schema is too large: it has more than {} parts, references included", max_schemas);
        if (schema == true) return writer_.json("value");
        if (schema == false) return leave_out(place, "false allows no value"), writer_.json("value");
        if (!schema.is_object()) refuse_schema(place, "a schema must be an object, true or false");
        if (has_null_keyword(schema)) return expression(without_null_keywords(schema), place, name);
        check_keywords(schema, place);
        if (const auto nullable = schema.find("nullable"); nullable != schema.end()) {
            SchemaJson rest = schema;
            rest.erase("nullable");
            const std::string value = rule(rest, place, name + "-value", false);
            return *nullable == true ? value + " | " + writer_.json("null") : value;
        }
        if (schema.contains("$ref")) return reference(schema, place, name);
        if (schema.contains("allOf")) return all_of(schema, place, name);
        for (const char* keyword : {"anyOf", "oneOf"})
            if (schema.contains(keyword)) return any_of(schema, keyword, place, name);
        if (const auto value = schema.find("const"); value != schema.end()) return gbnf_text(json_value_text(*value, place));
        if (schema.contains("enum")) return enumeration(schema, place);
        return typed(schema, place, name);
    }

    static std::string json_value_text(const SchemaJson& value, const std::string& place) {
        try {
            return value.dump();
        } catch (const nlohmann::json::exception&) {
            refuse_schema(place, "a value is not valid UTF-8");
        }
    }

    static bool has_type(const SchemaJson& value, const SchemaJson& types) {
        const auto is = [&](std::string_view type) {
            if (type == "integer") return value.is_number_integer();
            if (type == "number") return value.is_number();
            return std::string_view(value.is_boolean() ? "boolean" : value.type_name()) == type;
        };
        if (types.is_string()) return is(types.get_ref<const std::string&>());
        return std::ranges::any_of(
            types, [&](const SchemaJson& type) { return type.is_string() && is(type.get_ref<const std::string&>()); });
    }

    std::string enumeration(const SchemaJson& schema, const std::string& place) {
        const SchemaJson& values = schema["enum"];
        if (!values.is_array()) refuse_schema(place, "'enum' must be a list");
        std::vector<std::string> texts;
        for (const SchemaJson& value : values)
            if (!schema.contains("type") || has_type(value, schema["type"])) texts.push_back(json_value_text(value, place));
        if (texts.empty()) refuse_schema(place, "'enum' has no value of the schema's type");
        return any_text_gbnf(std::move(texts));
    }

    // "%20" of a URI's fragment, RFC 3986.
    static std::string unescaped(std::string_view fragment) {
        std::string out;
        for (size_t i = 0; i < fragment.size(); ++i) {
            uint8_t byte = 0;
            const char* const digits = fragment.data() + i + 1;
            const bool is_escape =
                fragment[i] == '%' && i + 2 < fragment.size() && std::from_chars(digits, digits + 2, byte, 16).ptr == digits + 2;
            out += is_escape ? char(byte) : fragment[i];
            i += is_escape ? 2 : 0;
        }
        return out;
    }

    const SchemaJson& pointed_at(const SchemaJson& reference, const std::string& place) const {
        if (!reference.is_string()) refuse_schema(place, "'$ref' must be a text");
        const auto& text = reference.get_ref<const std::string&>();
        static const SchemaJson anything = true;
        if (!text.starts_with('#'))
            return leave_out(place, fmt::format("'$ref' leads to another document: {}", printable(text))), anything;
        try {
            return root_.at(SchemaJson::json_pointer(unescaped(text.substr(1))));
        } catch (const nlohmann::json::exception&) {
            refuse_schema(place, fmt::format("'$ref' leads nowhere: {}", printable(text)));
        }
    }

    // Some programs write lists and maps that are empty as null.
    static bool is_null_keyword(const std::string& keyword, const SchemaJson& value) {
        return value.is_null() && keyword != "const" && !is_annotation(keyword);
    }
    static bool has_null_keyword(const SchemaJson& schema) {
        return std::ranges::any_of(schema.items(), [](const auto& item) { return is_null_keyword(item.key(), item.value()); });
    }
    static SchemaJson without_null_keywords(const SchemaJson& schema) {
        SchemaJson rest = SchemaJson::object();
        for (const auto& [keyword, value] : schema.items())
            if (!is_null_keyword(keyword, value)) rest[keyword] = value;
        return rest;
    }

    static SchemaJson without(SchemaJson schema, const char* keyword) {
        schema.erase(keyword);
        return schema;
    }
    // Returns a rule for the target of a reference, so that it can refer to itself.
    std::string reference(const SchemaJson& schema, const std::string& place, const std::string& name) {
        const SchemaJson& target = pointed_at(schema["$ref"], place);
        if (const SchemaJson rest = without(schema, "$ref"); !says_nothing(rest))
            return merged_expression(merge_schemas(target, rest, place, *this), place, name);
        const std::string pointer = schema["$ref"].get<std::string>().substr(1);
        if (const auto known = references_.find(pointer); known != references_.end()) {
            if (known->second.depth == depth_) refuse_schema(place, "'$ref' leads back to itself before there is a value");
            return known->second.name;
        }
        const std::string own = writer_.new_name("ref-" + pointer.substr(pointer.rfind('/') + 1));
        references_[pointer] = {own, depth_};
        if (++nesting_ > max_nesting) refuse_schema(place, "schemas are nested too deep");
        writer_.define(own, expression(target, pointer, own));
        --nesting_;
        references_[pointer].depth = unlimited;
        return own;
    }

    std::string merged_expression(const SchemaJson& merged, const std::string& place, const std::string& name) {
        if (++nesting_ > max_nesting) refuse_schema(place, "'$ref' with keywords beside it leads back to itself");
        std::string body = expression(merged, place, name);
        --nesting_;
        return body;
    }

    // A reference among the parts is replaced by its target.
    SchemaJson resolved(const SchemaJson& part, const std::string& place, uint32_t depth = 0) {
        if (++visited_ > max_schemas || depth > 32) refuse_schema(place, "allOf refers to too many schemas, or to itself");
        if (!part.is_object()) return part;
        SchemaJson whole = part;
        if (part.contains("$ref"))
            whole =
                merge_schemas(resolved(pointed_at(part["$ref"], place), place, depth + 1), without(part, "$ref"), place, *this);
        if (!whole.contains("allOf")) return whole;
        SchemaJson merged = without(whole, "allOf");
        if (!whole["allOf"].is_array()) refuse_schema(place, "'allOf' must be a list");
        for (const SchemaJson& inner : whole["allOf"])
            merged = merge_schemas(merged, resolved(inner, place, depth + 1), place, *this);
        return merged;
    }

    std::string all_of(const SchemaJson& schema, const std::string& place, const std::string& name) {
        return expression(resolved(schema, place), place, name);
    }

    // Alternatives that allow nothing are left out. If all allow nothing, they are converted all the same, so that leave_out()
    // hears of it.
    std::string any_of(const SchemaJson& schema, const char* keyword, const std::string& place, const std::string& name) {
        const SchemaJson base = without(schema, keyword);
        const SchemaJson& choices = schema[keyword];
        if (!choices.is_array() || choices.empty()) refuse_schema(place, fmt::format("'{}' must be a list of schemas", keyword));
        const bool none = std::ranges::all_of(choices, allows_nothing);
        std::string out;
        for (size_t i = 0; i < choices.size(); ++i) {
            if (!none && allows_nothing(choices[i])) continue;
            const std::string at = fmt::format("{}/{}/{}", place, keyword, i);
            const SchemaJson choice = says_nothing(base) ? choices[i] : merge_schemas(base, resolved(choices[i], at), at, *this);
            out += (out.empty() ? "" : " | ") + rule(choice, at, fmt::format("{}-{}", name, i + 1), false);
        }
        return out;
    }

    std::string typed(const SchemaJson& schema, const std::string& place, const std::string& name) {
        const auto given = schema.find("type");
        if (given != schema.end() && given->is_array()) {
            if (given->empty()) refuse_schema(place, "no type is left");
            std::string out;
            for (const SchemaJson& type : *given) {
                SchemaJson one = schema;
                one["type"] = type;
                out += (out.empty() ? "" : " | ") + rule(one, place, name, false);
            }
            return out;
        }
        std::string_view type = "";
        if (given != schema.end() && given->is_string()) type = given->get_ref<const std::string&>();
        if (given == schema.end())
            for (const auto& [keyword, implied] : typed_keywords)
                if (type.empty() && schema.contains(keyword)) type = implied;
        if (given == schema.end() && type.empty()) return writer_.json("value");
        if (std::ranges::find(type_names, type) == std::end(type_names))
            refuse_schema(place, "'type' must be object, array, string, number, integer, boolean, null, or a list of them");
        if (type == "object") return object_gbnf(*this, schema, place, name);
        if (type == "array") return array_gbnf(*this, schema, place, name);
        if (type == "string") return string_gbnf(*this, schema, place);
        if (type == "integer" || type == "number") return number_gbnf(*this, schema, place, type == "integer");
        return writer_.json(type);
    }

    const SchemaJson& root_;
    bool is_strict_ = true;
    GbnfWriter writer_;
    std::map<std::string, Reference> references_; // by JSON pointer
    uint32_t depth_ = 0, nesting_ = 0, visited_ = 0;
};

} // namespace

std::string json_schema_gbnf(const SchemaJson& schema, bool strict) {
    SchemaJson placed = schema;
    place_references(placed);
    return SchemaConverter(placed, strict).convert();
}

SchemaGrammar json_schema_rules(const SchemaJson& document, const std::vector<std::string>& pointers,
                                const std::vector<bool>& strict) {
    return SchemaConverter(document, true).convert(pointers, strict);
}

std::string json_schema_gbnf(std::string_view schema, bool strict) {
    if (schema.size() > max_gbnf_bytes)
        fail("the JSON schema has {} bytes: at most {} are supported", schema.size(), max_gbnf_bytes);
    return json_schema_gbnf(build_json<SchemaJson>(schema, "the JSON schema", {.max_depth = 100, .max_values = 1u << 17}),
                            strict);
}

std::string json_object_gbnf() {
    GbnfWriter writer;
    writer.define(writer.new_name("root"), "object");
    writer.json("object");
    return writer.text();
}

} // namespace tq::grammar
