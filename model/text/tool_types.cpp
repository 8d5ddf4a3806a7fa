// The types of tools' parameters, as far as the parser of XML-like calls needs them. <parameter=x>5</parameter> has no quotes:
// only the schema says whether it is the text "5" or the number 5. A parameter is a text, JSON, or either; in the last case a
// value that reads as JSON is JSON. So are parameters that a schema allows without a word about their values. Parameters and
// tools that no schema describes are texts, as nothing is lost then. Models now and then write Python's True, False and None
// instead of JSON's; these are read as the JSON values.
#include "model/text/tool_types.h"
#include "base/error.h"
#include "base/json.h"
#include "model/text/python_json.h"
#include "model/text/schema_places.h"
#include <algorithm>

namespace tq {
namespace {

using OrderedJson = nlohmann::ordered_json;

constexpr uint32_t text_bit = 1, json_bit = 2;

class TypeReader {
  public:
    explicit TypeReader(SchemaPlaces& places) : places_(places) {}

    // The types that a schema allows, as bits. All keywords beside one another hold.
    uint32_t read(const OrderedJson& schema, uint32_t depth = 0) {
        uint32_t types = text_bit | json_bit;
        if (!schema.is_object() || depth > max_depth || ++schemas_ > max_schemas) return types;
        for (const auto& [keyword, value] : schema.get_ref<const OrderedJson::object_t&>()) {
            if (keyword == "type")
                types &= any_of(value, [](const OrderedJson& type) { return type == "string" ? text_bit : json_bit; });
            if (keyword == "const") types &= of_value(value);
            if (keyword == "enum" && value.is_array()) types &= any_of(value, of_value);
            if ((keyword == "anyOf" || keyword == "oneOf") && value.is_array())
                types &= any_of(value, [&](const OrderedJson& one) { return read(one, depth + 1); });
            if (keyword == "allOf" && value.is_array())
                for (const OrderedJson& one : value) types &= read(one, depth + 1);
            if (keyword == "$ref")
                if (const OrderedJson* target = target_of(value, places_)) types &= read(*target, depth + 1);
        }
        return schema.value("nullable", OrderedJson()) == true ? types | json_bit : types;
    }

    static const OrderedJson* target_of(const OrderedJson& reference, SchemaPlaces& places) {
        const bool is_local = reference.is_string() && reference.get_ref<const std::string&>().starts_with('#');
        return is_local ? places.find(std::string_view(reference.get_ref<const std::string&>()).substr(1)) : nullptr;
    }

  private:
    static constexpr uint32_t max_depth = 32, max_schemas = 1000; // that are read for one parameter

    static uint32_t of_value(const OrderedJson& value) { return value.is_string() ? text_bit : json_bit; }
    static uint32_t any_of(const OrderedJson& value, const auto& bits) {
        if (!value.is_array()) return bits(value);
        uint32_t all = value.empty() ? text_bit | json_bit : 0;
        for (const OrderedJson& one : value) all |= bits(one);
        return all;
    }

    SchemaPlaces& places_;
    uint32_t schemas_ = 0;
};

// Python's words for JSON's, as models write them.
std::string_view as_json_word(std::string_view value) {
    return value == "True" ? "true" : value == "False" ? "false" : value == "None" ? "null" : value;
}

std::string_view trim_spaces(std::string_view text) {
    const size_t begin = text.find_first_not_of(" \t\r\n");
    return begin == text.npos ? "" : text.substr(begin, text.find_last_not_of(" \t\r\n") + 1 - begin);
}

} // namespace

ToolTypes::Type parameter_type(const OrderedJson& schema, SchemaPlaces& places) {
    const uint32_t types = TypeReader(places).read(schema);
    return types == text_bit ? ToolTypes::Type::text : types == json_bit ? ToolTypes::Type::json : ToolTypes::Type::either;
}

ToolTypes::ToolTypes(const OrderedJson& tools) {
    if (!tools.is_array()) return;
    for (const OrderedJson& tool : tools) {
        if (!tool.is_object()) continue;
        const OrderedJson& function = tool.contains("function") && tool["function"].is_object() ? tool["function"] : tool;
        if (!function.contains("name") || !function["name"].is_string()) continue;
        Parameters& all = types_[function["name"].get<std::string>()];
        const auto parameters = function.find("parameters");
        if (parameters == function.end() || !parameters->is_object() || parameters->empty()) continue;
        SchemaPlaces places(*parameters);
        Seen seen;
        add(all, *parameters, places, seen);
        if (all.types.empty() && !all.others && !parameters->contains("properties")) all.others = Type::either;
    }
}

// Adds the parameters that a schema describes, wherever it does. If it describes one several times, and not alike, it is either.
void ToolTypes::add(Parameters& all, const OrderedJson& schema, SchemaPlaces& places, Seen& seen) {
    if (!seen.insert(&schema).second) return;
    if (schema.is_array())
        for (const OrderedJson& one : schema) add(all, one, places, seen);
    if (!schema.is_object()) return;
    for (const auto& [keyword, value] : schema.get_ref<const OrderedJson::object_t&>()) {
        if (keyword == "properties" && value.is_object())
            for (const auto& [name, inner] : value.get_ref<const OrderedJson::object_t&>()) {
                const Type type = parameter_type(inner, places);
                const auto [known, is_new] = all.types.try_emplace(name, type);
                if (!is_new && known->second != type) known->second = Type::either;
            }
        if (keyword == "patternProperties") all.others = Type::either;
        if ((keyword == "additionalProperties" || keyword == "unevaluatedProperties") && value != false && !all.others)
            all.others = parameter_type(value, places);
        if (keyword == "$ref")
            if (const OrderedJson* target = TypeReader::target_of(value, places)) add(all, *target, places, seen);
        for (const char* inner : {"allOf", "anyOf", "oneOf", "then", "else"})
            if (keyword == inner) add(all, value, places, seen);
    }
}

bool ToolTypes::has_beginning(std::string_view name) const {
    return std::ranges::any_of(types_, [&](const auto& entry) { return entry.first.starts_with(name); });
}

ToolTypes::Type ToolTypes::type(const std::string& function, const std::string& parameter) const {
    const auto types = types_.find(function);
    if (types == types_.end()) return Type::text;
    const auto found = types->second.types.find(parameter);
    return found == types->second.types.end() ? types->second.others.value_or(Type::text) : found->second;
}

std::string json_string_part(std::string_view text) {
    const std::string quoted = OrderedJson(text).dump(-1, ' ', false, OrderedJson::error_handler_t::replace);
    return quoted.substr(1, quoted.size() - 2);
}

std::string parameter_json(std::string_view value, ToolTypes::Type type) {
    const auto as_text = [&] { return '"' + json_string_part(value) + '"'; };
    if (type == ToolTypes::Type::text) return as_text();
    try {
        const auto json = build_json<OrderedJson>(as_json_word(trim_spaces(value)), "the value", {.max_depth = 128});
        return python_json(json);
    } catch (const Error&) {
        return as_text();
    }
}

} // namespace tq
