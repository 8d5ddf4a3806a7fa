// The tools and calls of Qwen3-Coder and of its successors, which are written in tags in place of JSON: <function=NAME>,
// <parameter=KEY>, and the value on lines of its own.
// The templates are Jinja, so values are printed as Python prints them. A prompt must have the very bytes that the model was
// trained with, and Python's bytes differ from JSON's: True, None, 'single quotes', 1e-05. python_text() is str(), python_repr()
// is repr() within a list; structured values are JSON in most places (value_text()), for there the template says tojson.
// The texts below are those of the templates, verbatim. They are markup, and a change of one character changes what the model
// sees.
// A call whose arguments are not a JSON object is an error, unless ChatOptions::cut_arguments is set: then it is a call that
// was cut by a limit of tokens, and is shown as far as it was written.
#include "model/text/coder_template.h"
#include "base/error.h"
#include "model/text/python_json.h"
#include <algorithm>
#include <nlohmann/json.hpp>

namespace tq {
namespace {

using OrderedJson = nlohmann::ordered_json;

// Python's repr of a text within a list.
std::string python_repr(const std::string& text) {
    const bool double_quotes = text.find('\'') != text.npos && text.find('"') == text.npos;
    const char quote = double_quotes ? '"' : '\'';
    std::string out(1, quote);
    for (const char c : text) {
        if (c == '\n')
            out += "\\n";
        else if (c == '\t')
            out += "\\t";
        else if (c == '\r')
            out += "\\r";
        else
            (out += c == quote || c == '\\' ? "\\" : "") += c;
    }
    return out + quote;
}

// str(value) in Python.
std::string python_text(const OrderedJson& value, bool nested = false) {
    if (value.is_string()) return nested ? python_repr(value.get<std::string>()) : value.get<std::string>();
    if (value.is_null()) return "None";
    if (value.is_boolean()) return value.get<bool>() ? "True" : "False";
    if (!value.is_structured()) return python_json(value);
    std::string out;
    for (const auto& [key, item] : value.items()) {
        out += out.empty() ? "" : ", ";
        out += (value.is_object() ? python_repr(key) + ": " : "") + python_text(item, true);
    }
    return value.is_object() ? "{" + out + "}" : "[" + out + "]";
}

// Returns a value as the template writes it: JSON if it has parts.
std::string value_text(const OrderedJson& value) { return value.is_structured() ? python_json(value) : python_text(value); }

std::string trimmed_text(const OrderedJson& value) {
    const std::string text = python_text(value);
    return std::string(python_strip(text));
}

void append_element(std::string& out, std::string_view name, std::string_view text) {
    out += fmt::format("\n<{}>{}</{}>", name, text, name);
}

void append_other_keys(std::string& out, const OrderedJson& object, std::initializer_list<std::string_view> known) {
    if (!object.is_object()) return;
    for (const auto& [key, value] : object.items())
        if (std::ranges::find(known, key) == known.end()) append_element(out, key, value_text(value));
}

void append_parameter(std::string& out, const std::string& name, const OrderedJson& fields) {
    out += "\n<parameter>";
    append_element(out, "name", name);
    if (fields.is_object() && fields.contains("type")) append_element(out, "type", python_text(fields["type"]));
    if (fields.is_object() && fields.contains("description"))
        append_element(out, "description", trimmed_text(fields["description"]));
    append_other_keys(out, fields, {"name", "type", "description"});
    out += "\n</parameter>";
}

void append_tool(std::string& out, const OrderedJson& tool) {
    out += "\n<function>";
    append_element(out, "name", tool.contains("name") ? python_text(tool["name"]) : "");
    if (tool.contains("description")) append_element(out, "description", trimmed_text(tool["description"]));
    out += "\n<parameters>";
    const OrderedJson none, &parameters = tool.contains("parameters") ? tool["parameters"] : none;
    if (parameters.is_object() && parameters.contains("properties") && parameters["properties"].is_object())
        for (const auto& [name, fields] : parameters["properties"].items()) append_parameter(out, name, fields);
    append_other_keys(out, parameters, {"type", "properties"});
    out += "\n</parameters>";
    append_other_keys(out, tool, {"type", "name", "description", "parameters"});
    out += "\n</function>";
}

} // namespace

const std::string_view coder_system = "You are Qwen, a helpful AI assistant that can interact with a computer to solve tasks.";
const std::string_view coder_intro = "# Tools\n\nYou have access to the following functions:\n\n<tools>";
const std::string_view coder_outro =
    "\n</tools>\n\nIf you choose to call a function ONLY reply in the following format with NO suffix:\n\n<tool_call>\n"
    "<function=example_function_name>\n<parameter=example_parameter_1>\nvalue_1\n</parameter>\n<parameter=example_parameter_2>\n"
    "This is the value for the second parameter\nthat can span\nmultiple lines\n</parameter>\n</function>\n</tool_call>\n\n"
    "<IMPORTANT>\nReminder:\n"
    "- Function calls MUST follow the specified format: an inner <function=...></function> block must be nested within "
    "<tool_call></tool_call> XML tags\n"
    "- Required parameters MUST be specified\n"
    "- You may provide optional reasoning for your function call in natural language BEFORE the function call, but NOT after\n"
    "- If there is no function call available, answer the question like normal with your current knowledge and do not tell the "
    "user about function calls\n</IMPORTANT>";

const std::string_view coder_next_intro = "# Tools\n\nYou have access to the following tools:\n\n<tools>";
const std::string_view coder_next_outro =
    "\n</tools>\n\nIf you choose to call a tool ONLY reply in the following format with NO suffix:\n\n<tool_call>\n"
    "<function=example_function_name>\n<parameter=example_parameter_1>\nvalue_1\n</parameter>\n<parameter=example_parameter_2>\n"
    "value_2\n</parameter>\n</function>\n</tool_call>\n\n<IMPORTANT>\nReminder:\n"
    "- Function calls MUST follow the specified format: the tool calling block MUST begin with an opening <tool_call> tag and "
    "end "
    "with a closing </tool_call> tag.\n"
    "- Required parameters MUST be specified\n"
    "- You may provide optional reasoning for your function call in natural language BEFORE the function call, but NOT after\n"
    "- If there is no function call available, answer the question like normal with your current knowledge and do not tell the "
    "user about function calls\n</IMPORTANT>";

std::string coder_tool(const OrderedJson& tool) {
    const auto function = tool.find("function");
    std::string out;
    append_tool(out, function != tool.end() && function->is_object() ? *function : tool);
    return out;
}

// Qwen3.6 and later templates write all values but texts as JSON; earlier ones only those that have parts, and the others as
// Python prints them.
static std::string arguments_text(const OrderedJson& arguments, bool as_json) {
    std::string out;
    for (const auto& [key, value] : arguments.items()) {
        const std::string text = as_json && !value.is_string() ? python_json(value) : value_text(value);
        out += fmt::format("<parameter={}>\n{}\n</parameter>\n", key, text);
    }
    return out;
}

std::string coder_call(const ChatMessage::ToolCall& call, size_t message, const ChatOptions& options) {
    const bool as_json = options.variant == ChatVariant::qwen36 || options.variant == ChatVariant::qwen38;
    std::string arguments;
    try {
        if (!is_qwen35(options.variant) || call.arguments != "") arguments = arguments_text(call.object(message), as_json);
    } catch (const Error&) {
        if (!options.cut_arguments) throw;
        arguments = call.text() + "\n";
    }
    return fmt::format("<function={}>\n{}</function>\n", call.name, arguments);
}

} // namespace tq
