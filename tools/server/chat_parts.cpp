// Fields that several APIs have in common, each read in one place, in whichever of its forms a client sends it. The result is
// always OpenAI's form for chats ({"type": "function", "function": {...}}), because that is what chat templates take.
// - Functions may have their fields in "function" or beside "type" (chats, responses). Custom tools, whose input is a text,
//   become functions with one text parameter, "input"; ChatTask::custom_tools keeps their names for the way back.
// - "tool_choice" is a word or an object. allowed_tools removes the other tools from the prompt, so it is not the same prompt any
//   more.
// - Thinking is asked for by an effort, a switch or a budget of tokens. Callers read the most general field first: the last one
//   counts.
// Tools that run on the servers of others are left out and named in the log once; a request that has them is still answered. A
// demand on the answer that cannot be met (a call of a tool that is not there) is an error (400) that names the field.
#include "tools/server/chat_parts.h"
#include "base/printable.h"
#include <algorithm>
#include <set>

namespace tq::server {

constexpr size_t max_tool_name_bytes = 128;

std::string entry_path(std::string_view path, size_t index) { return fmt::format("{}[{}]", path, index); }

const Json& object_entry(const Json& list, size_t index, std::string_view path) {
    const Json& entry = list[index];
    if (!entry.is_object()) bad_request(entry_path(path, index), "{}[{}] must be an object", path, index);
    return entry;
}

std::string required_text(const Json& object, const char* name, std::string_view path) {
    if (auto text = text_field(object, name, path)) return *std::move(text);
    const std::string field = field_path(path, name);
    bad_request(field, "{} is missing: it must be a text", field);
}

// A tool's name stands within the markup of calls, by which answers are parsed, so it must not have characters of that markup.
std::string required_name(const Json& object, std::string_view path) {
    std::string name = required_text(object, "name", path);
    if (name.empty()) bad_request(field_path(path, "name"), "{}.name is empty: a tool must have a name", path);
    const auto is_markup = [](char c) {
        return uint8_t(c) < 0x20 || c == 0x7F || std::string_view("<>\"\\").find(c) != std::string_view::npos;
    };
    if (name.size() > max_tool_name_bytes || std::ranges::any_of(name, is_markup))
        bad_request(
            field_path(path, "name"),
            "{}.name is \"{}\", but the name of a tool must have at most {} bytes, and no <, >, \", \\ or control characters, "
            "of which calls are made",
            path, printable(name, 80), max_tool_name_bytes);
    return name;
}

const Json& required_object(const Json& object, const char* name, std::string_view path) {
    if (const Json* value = object_field(object, name, path)) return *value;
    const std::string field = field_path(path, name);
    bad_request(field, "{} is missing: it must be an object", field);
}

void append_text(std::string& text, std::string_view more, std::string_view between) {
    if (!text.empty() && !more.empty()) text += between;
    text += more;
}

std::string dump_text(const Json& json) { return json.dump(-1, ' ', false, Json::error_handler_t::replace); }

Json function_tool(const std::string& name, const std::optional<std::string>& description, const Json* parameters) {
    Json function = {{"name", name}};
    if (description) function["description"] = *description;
    if (parameters) function["parameters"] = *parameters;
    return {{"type", "function"}, {"function", std::move(function)}};
}

void add_function(ChatTask& task, const Json& given, Json function, std::string_view path) {
    if (bool_field(given, "strict", path).value_or(false))
        task.strict_tools.insert(function["function"]["name"].get<std::string>());
    task.tools.push_back(std::move(function));
}

static void require_tool(ChatTask& task, const std::string& name, std::string_view path) {
    const bool known = std::any_of(task.tools.begin(), task.tools.end(),
                                   [&](const Json& tool) { return tool.at("function").at("name") == name; });
    if (!known)
        bad_request(std::string(path), "{} asks for the tool \"{}\", which is not a function among \"tools\"", path,
                    printable(name));
    task.tool_choice = ToolChoice::named;
    task.tool_name = name;
}

static void require_any_tool(ChatTask& task, std::string_view path) {
    if (task.tools.empty()) bad_request(std::string(path), "{} asks for a call, but there is no function among \"tools\"", path);
    task.tool_choice = ToolChoice::required;
}

// Tools that are not allowed are left out of the prompt: the model cannot call what it has not seen.
// {"type": "allowed_tools", "mode": "auto" | "required", "tools": [{"type": "function", "name"}]}; in chats the fields are within
// "allowed_tools", and the name within "function".
static void allow_tools(ChatTask& task, const Json& choice, const Limits& limits) {
    const Json* inner = object_field(choice, "allowed_tools", "tool_choice");
    const Json& given = inner ? *inner : choice;
    const Json* allowed = array_field(given, "tools", limits.tools, "tool_choice");
    std::set<std::string> names;
    for (size_t i = 0; allowed && i < allowed->size(); ++i) {
        const Json& tool = object_entry(*allowed, i, "tool_choice.tools");
        const std::string path = entry_path("tool_choice.tools", i);
        const Json* function = object_field(tool, text_field(tool, "type", path).value_or("function").c_str(), path);
        names.insert(text_field(function ? *function : tool, "name", path).value_or(""));
    }
    Json kept = Json::array();
    for (const Json& tool : task.tools)
        if (names.contains(tool.at("function").at("name").get<std::string>())) kept.push_back(tool);
    task.tools = std::move(kept);
    if (text_field(given, "mode", "tool_choice").value_or("auto") == "required") require_any_tool(task, "tool_choice");
}

// The words of all APIs are taken for each: "required" and "any" are the same, as are "function" and "tool". A choice that names
// a tool needs it among the tools that were read, so this is read after them.
void read_tool_choice(ChatTask& task, const Json& body, const Limits& limits) {
    task.parallel_tool_calls = bool_field(body, "parallel_tool_calls").value_or(true);
    const Json* choice = member(body, "tool_choice");
    if (!choice) return;
    if (!choice->is_string() && !choice->is_object())
        bad_request("tool_choice", "tool_choice must be auto, none, required or an object such as {{\"type\": \"function\", "
                                   "\"name\": ...}}");
    const bool is_word = choice->is_string();
    const std::string type =
        is_word ? choice->get<std::string>() : text_field(*choice, "type", "tool_choice").value_or("function");
    if (!is_word && bool_field(*choice, "disable_parallel_tool_use", "tool_choice").value_or(false))
        task.parallel_tool_calls = false;
    if (type == "auto") return;
    if (type == "none") {
        task.tool_choice = ToolChoice::none;
        return;
    }
    if (type == "required" || type == "any") return require_any_tool(task, "tool_choice");
    if (!is_word && type == "allowed_tools") return allow_tools(task, *choice, limits);
    if (is_word || (type != "function" && type != "custom" && type != "tool"))
        bad_request(is_word ? "tool_choice" : "tool_choice.type",
                    "tool_choice is \"{}\", but must be auto, none, required (any), allowed_tools, or name a tool of the type "
                    "function (tool) or custom",
                    printable(type));
    const Json* inner = object_field(*choice, type.c_str(), "tool_choice");
    require_tool(task, required_text(inner ? *inner : *choice, "name", "tool_choice"), "tool_choice");
}

// A grammar of the input is told to the model as a part of the description, and is not enforced.
static void add_custom_tool(ChatTask& task, const Json& given, const std::string& name, const std::string& path) {
    std::string description = text_field(given, "description", path).value_or("");
    if (const Json* format = object_field(given, "format", path)) { // a chat's has the definition within "grammar"
        const std::string at = field_path(path, "format");
        const Json* grammar = object_field(*format, "grammar", at);
        const auto definition = text_field(grammar ? *grammar : *format, "definition", at);
        if (definition) append_text(description, fmt::format("The input follows this grammar:\n{}", *definition), "\n\n");
    }
    const Json parameters = {{"type", "object"},
                             {"properties", {{"input", {{"type", "string"}}}}},
                             {"required", {"input"}},
                             {"additionalProperties", false}};
    task.tools.push_back(function_tool(name, description, &parameters));
    task.custom_tools.insert(name);
}

void read_tools(ChatTask& task, const Json& body, const Limits& limits) {
    const Json* tools = array_field(body, "tools", limits.tools);
    for (size_t i = 0; tools && i < tools->size(); ++i) {
        const std::string path = entry_path("tools", i);
        const Json& tool = object_entry(*tools, i, "tools");
        const std::string type = text_field(tool, "type", path).value_or("function");
        if (type != "function" && type != "custom") {
            task.ignored.insert(fmt::format("tools of the type {}", printable(type, 40)));
            continue;
        }
        const Json* inner = object_field(tool, type.c_str(), path);
        const Json& given = inner ? *inner : tool;
        const std::string at = inner ? field_path(path, type) : path, name = required_name(given, at);
        if (type == "custom") {
            add_custom_tool(task, given, name, at);
            continue;
        }
        const auto description = text_field(given, "description", at);
        const Json* parameters = object_field(given, "parameters", at);
        add_function(task, given, inner ? tool : function_tool(name, description, parameters), at);
    }
    read_tool_choice(task, body, limits);
}

// The fields of a schema lie within "json_schema" in chats, and beside "type" in responses.
Format read_format(const Json* format, const std::string& path, bool of_chat) {
    if (!format) return {};
    const std::string type = required_text(*format, "type", path);
    if (type == "text") return {};
    if (type != "json_object" && type != "json_schema")
        bad_request(field_path(path, "type"), "{} is \"{}\", but must be text, json_object or json_schema",
                    field_path(path, "type"), printable(type));
    const Json* own = type == "json_schema" ? object_field(*format, "json_schema", path) : nullptr;
    const Json& holder = own ? *own : *format;
    const std::string inner = own ? field_path(path, "json_schema") : path;
    const Json* schema = member(holder, "schema");
    if (type == "json_schema" && !schema) {
        const std::string field = field_path(of_chat ? field_path(path, "json_schema") : path, "schema");
        bad_request(field, "{} is missing: it is the JSON schema of the answer", field);
    }
    return {.kind = schema ? Format::Kind::json_schema : Format::Kind::json_object,
            .schema = schema ? *schema : Json(),
            .gbnf = {},
            .strict = bool_field(holder, "strict", inner).value_or(false)};
}

bool read_effort(ChatTask& task, const std::string& effort) {
    if (effort == "none" || effort == "minimal") {
        task.think = false;
        return true;
    }
    if (effort == "auto" || effort == "default") return true;
    const auto known = find_effort(effort);
    if (!known) return false;
    task.think = true;
    task.effort = known;
    return true;
}

void read_reasoning(ChatTask& task, const Json& body) {
    const Json* reasoning = object_field(body, "reasoning");
    if (!reasoning) return;
    const auto effort = text_field(*reasoning, "effort", "reasoning");
    if (effort && !read_effort(task, *effort)) task.think = true;
    if (const auto enabled = bool_field(*reasoning, "enabled", "reasoning")) task.think = enabled;
    const auto budget = integer_field(*reasoning, "max_tokens", 0, INT32_MAX, "reasoning");
    if (budget) task.thinking_budget = uint32_t(*budget);
}

void read_thinking(ChatTask& task, const Json& body) {
    const Json* thinking = object_field(body, "thinking");
    if (!thinking) return;
    const std::string type = required_text(*thinking, "type", "thinking");
    if (type != "enabled" && type != "adaptive" && type != "disabled")
        bad_request("thinking.type", "thinking.type is \"{}\", but must be enabled, adaptive or disabled", printable(type));
    task.think = type != "disabled";
    const auto budget = integer_field(*thinking, "budget_tokens", 0, INT32_MAX, "thinking");
    if (budget && type == "enabled") task.thinking_budget = uint32_t(*budget);
}

// Values that an API's own fields have set (a limit, stops, log probabilities) stay; the rest comes from the common fields. These
// APIs have one answer.
void read_task_sampling(ChatTask& task, const Service& service, const Json& body) {
    Sampling sampling = read_sampling(service, body);
    if (task.sampling.max_tokens) sampling.max_tokens = task.sampling.max_tokens;
    if (!task.sampling.stop.empty()) sampling.stop = std::move(task.sampling.stop);
    sampling.logprobs = task.sampling.logprobs;
    sampling.top_logprobs = task.sampling.top_logprobs;
    sampling.choices = 1;
    task.sampling = std::move(sampling);
}

} // namespace tq::server
