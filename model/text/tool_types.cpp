// The types of tools' parameters, as far as the parser of XML-like calls needs them. <parameter=x>5</parameter> has no quotes:
// only the schema says whether it is the text "5" or the number 5. A parameter is a text, JSON, or either; in the last case a
// value that reads as JSON is JSON. Parameters and tools that no schema describes are texts, as nothing is lost then. Models now
// and then write Python's True, False and None instead of JSON's; these are read as the JSON values.
#include "model/text/tool_types.h"
#include "base/error.h"
#include "base/json.h"
#include "model/text/python_json.h"
#include <algorithm>

namespace tq {
namespace {

using OrderedJson = nlohmann::ordered_json;

ToolTypes::Type parameter_type(const OrderedJson& schema) {
    if (!schema.is_object()) return ToolTypes::Type::either;
    const auto is_text = [](const OrderedJson& type) { return type == "string"; };
    const auto type = schema.find("type");
    if (type != schema.end() && type->is_array())
        return std::ranges::any_of(*type, is_text) ? type->size() == 1 ? ToolTypes::Type::text : ToolTypes::Type::either
                                                   : ToolTypes::Type::json;
    if (type != schema.end()) return is_text(*type) ? ToolTypes::Type::text : ToolTypes::Type::json;
    const auto values = schema.find("enum");
    const bool texts = values != schema.end() && values->is_array() &&
                       std::ranges::all_of(*values, [](const OrderedJson& value) { return value.is_string(); });
    return texts ? ToolTypes::Type::text : ToolTypes::Type::either;
}

// Python's words for JSON's, as models write them.
std::string_view as_json_word(std::string_view value) {
    return value == "True" ? "true" : value == "False" ? "false" : value == "None" ? "null" : value;
}

std::string_view trim_spaces(std::string_view text) {
    const size_t begin = text.find_first_not_of(" \t\r\n");
    return begin == text.npos ? "" : text.substr(begin, text.find_last_not_of(" \t\r\n") + 1 - begin);
}

} // namespace

ToolTypes::ToolTypes(const OrderedJson& tools) {
    if (!tools.is_array()) return;
    for (const OrderedJson& tool : tools) {
        if (!tool.is_object()) continue;
        const OrderedJson& function = tool.contains("function") && tool["function"].is_object() ? tool["function"] : tool;
        if (!function.contains("name") || !function["name"].is_string()) continue;
        auto& types = types_[function["name"].get<std::string>()];
        const auto parameters = function.find("parameters");
        if (parameters == function.end() || !parameters->is_object() || !parameters->contains("properties")) continue;
        const OrderedJson& properties = (*parameters)["properties"];
        if (!properties.is_object()) continue;
        for (const auto& [name, schema] : properties.items()) types[name] = parameter_type(schema);
    }
}

bool ToolTypes::has_beginning(std::string_view name) const {
    return std::ranges::any_of(types_, [&](const auto& entry) { return entry.first.starts_with(name); });
}

ToolTypes::Type ToolTypes::type(const std::string& function, const std::string& parameter) const {
    const auto types = types_.find(function);
    if (types == types_.end()) return Type::text;
    const auto found = types->second.find(parameter);
    return found == types->second.end() ? Type::text : found->second;
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
