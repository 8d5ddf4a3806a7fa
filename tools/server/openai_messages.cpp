#include "tools/server/openai_messages.h"
#include "base/json.h"
#include "base/printable.h"
#include "tools/server/json_fields.h"
#include "tools/server/openai_reply.h"

namespace tq::server {
namespace {

// The text of a content: a text, or a list of parts of text.
std::string content_text(const Json& message, const std::string& path) {
    const Json* content = member(message, "content");
    if (!content) return {};
    if (content->is_string()) return content->get<std::string>();
    const std::string field = field_path(path, "content");
    if (!content->is_array()) bad_request(field, "\"{}\" must be a text, a list of parts or null", field);
    std::string text;
    for (size_t i = 0; i < content->size(); ++i) {
        const Json& part = (*content)[i];
        const std::string here = fmt::format("{}[{}]", field, i);
        if (!part.is_object()) bad_request(here, "\"{}\" must be an object with a type", here);
        const std::string type = text_field(part, "type", here).value_or("");
        if (type != "text" && type != "refusal")
            bad_request(here, "\"{}\" is of the type \"{}\": this model takes only text", here, printable(type));
        const auto words = text_field(part, type.c_str(), here);
        if (!words) bad_request(here, "\"{}.{}\" is missing", here, type);
        text += *words;
    }
    return text;
}

// The arguments of a call in the history: a text that is a JSON object. Some clients leave it empty where there are none.
std::string call_arguments_text(const Json& function, const std::string& path, const Limits& limits) {
    const std::string field = field_path(path, "arguments");
    const Json* arguments = member(function, "arguments");
    if (!arguments || *arguments == "") return "{}";
    if (arguments->is_object()) return arguments->dump();
    if (!arguments->is_string()) bad_request(field, "\"{}\" must be a text that holds a JSON object", field);
    const auto& text = arguments->get_ref<const std::string&>();
    bool is_object = false;
    try {
        is_object = build_json<Json>(text, field, {.max_depth = limits.json_depth, .repeated_keys = true}).is_object();
    } catch (const Error& error) {
        bad_request(field, "{}", error.what());
    }
    if (!is_object) bad_request(field, "\"{}\" must hold a JSON object", field);
    return text;
}

Json read_calls(const Json& message, const std::string& path, const Limits& limits) {
    const Json* given = array_field(message, "tool_calls", limits.tools, path);
    Json calls = Json::array();
    for (size_t i = 0; given && i < given->size(); ++i) {
        const std::string here = fmt::format("{}.tool_calls[{}]", path, i), inner = here + ".function";
        if (!(*given)[i].is_object()) bad_request(here, "\"{}\" must be an object", here);
        const Json* function = object_field((*given)[i], "function", here);
        if (!function) bad_request(inner, "\"{}\" is missing", inner);
        const std::string name = text_field(*function, "name", inner).value_or("");
        if (name.empty()) bad_request(field_path(inner, "name"), "\"{}.name\" is missing", inner);
        calls.push_back(
            {{"type", "function"}, {"function", {{"name", name}, {"arguments", call_arguments_text(*function, inner, limits)}}}});
    }
    return calls;
}

Json read_message(const Json& message, const std::string& path, const Limits& limits) {
    if (!message.is_object()) bad_request(path, "\"{}\" must be an object with a role and a content", path);
    std::string role = text_field(message, "role", path).value_or("");
    if (role == "developer") role = "system";
    if (role != "system" && role != "user" && role != "assistant" && role != "tool")
        bad_request(field_path(path, "role"), "\"{}.role\" must be system, developer, user, assistant or tool, but is \"{}\"",
                    path, printable(role));
    Json read = {{"role", role}, {"content", content_text(message, path)}};
    if (role != "assistant" && !member(message, "content"))
        bad_request(field_path(path, "content"), "\"{}.content\" is missing", path);
    if (role != "assistant") return read;
    for (const char* name : {"reasoning_content", "reasoning"}) {
        const Json* reasoning = member(message, name);
        if (reasoning && reasoning->is_string() && *reasoning != "") read["reasoning_content"] = *reasoning;
    }
    if (Json calls = read_calls(message, path, limits); !calls.empty()) read["tool_calls"] = std::move(calls);
    return read;
}

bool has_tool(const Json& tools, const std::string& name) {
    for (const Json& tool : tools)
        if (tool["function"]["name"] == name) return true;
    return false;
}

void read_tool_choice(ChatTask& task, const Json& body) {
    const Json* choice = member(body, "tool_choice");
    if (!choice || *choice == "auto") return;
    if (*choice == "none") {
        task.tool_choice = ToolChoice::none;
    } else if (*choice == "required") {
        task.tool_choice = ToolChoice::required;
    } else {
        const Json* function = choice->is_object() ? object_field(*choice, "function", "tool_choice") : nullptr;
        if (!function)
            bad_request("tool_choice",
                        "\"tool_choice\" must be \"auto\", \"none\", \"required\" or {{\"type\": \"function\", \"function\": "
                        "{{\"name\": ...}}}}");
        task.tool_choice = ToolChoice::named;
        task.tool_name = text_field(*function, "name", "tool_choice.function").value_or("");
        if (task.tools.is_null() || !has_tool(task.tools, task.tool_name))
            bad_request("tool_choice", "\"tool_choice\" names the function \"{}\", which is not among the {} of \"tools\"",
                        printable(task.tool_name), task.tools.size());
    }
    if (task.tool_choice == ToolChoice::required && task.tools.is_null())
        bad_request("tool_choice", "\"tool_choice\" is \"required\", but there are no \"tools\"");
}

// Whether a request says that the model thinks: the most specific field counts.
std::optional<bool> read_think(const Json& body) {
    if (const Json* arguments = object_field(body, "chat_template_kwargs"))
        if (const auto think = bool_field(*arguments, "enable_thinking", "chat_template_kwargs")) return think;
    if (const auto think = bool_field(body, "enable_thinking")) return think;
    const auto effort = text_field(body, "reasoning_effort");
    if (!effort) return std::nullopt;
    if (*effort == "none" || *effort == "minimal") return false;
    for (const char* known : {"low", "medium", "high", "xhigh", "max"})
        if (*effort == known) return true;
    bad_request("reasoning_effort", "\"reasoning_effort\" must be none, minimal, low, medium, high, xhigh or max, but is \"{}\"",
                printable(*effort));
}

} // namespace

Json read_messages(const Json& body, const Limits& limits) {
    const Json* given = array_field(body, "messages", limits.messages);
    if (!given || given->empty()) bad_request("messages", "\"messages\" must be a list of at least one message");
    Json messages = Json::array();
    for (size_t i = 0; i < given->size(); ++i) {
        Json message = read_message((*given)[i], fmt::format("messages[{}]", i), limits);
        const bool joins = messages.size() == 1 && message["role"] == "system" && messages[0]["role"] == "system";
        if (joins)
            messages[0]["content"] =
                fmt::format("{}\n\n{}", messages[0]["content"].get<std::string>(), message["content"].get<std::string>());
        else
            messages.push_back(std::move(message));
    }
    return messages;
}

void read_tools(ChatTask& task, const Json& body, const Limits& limits) {
    const Json* tools = array_field(body, "tools", limits.tools);
    for (size_t i = 0; tools && i < tools->size(); ++i) {
        const std::string path = fmt::format("tools[{}]", i), inner = path + ".function";
        const Json& tool = (*tools)[i];
        if (!tool.is_object()) bad_request(path, "\"{}\" must be an object", path);
        const std::string type = text_field(tool, "type", path).value_or("function");
        if (type != "function")
            bad_request(field_path(path, "type"), "\"{}.type\" must be \"function\", but is \"{}\"", path, printable(type));
        const Json* function = object_field(tool, "function", path);
        if (!function) bad_request(inner, "\"{}\" is missing", inner);
        if (text_field(*function, "name", inner).value_or("").empty())
            bad_request(field_path(inner, "name"), "\"{}.name\" is missing", inner);
        text_field(*function, "description", inner);
        object_field(*function, "parameters", inner);
    }
    if (tools && !tools->empty()) task.tools = *tools;
    task.parallel_tool_calls = bool_field(body, "parallel_tool_calls").value_or(true);
    read_tool_choice(task, body);
}

ChatTask read_chat_task(const Service& service, const Json& body) {
    const Limits& limits = service.options.limits;
    ChatTask task;
    task.messages = read_messages(body, limits);
    read_tools(task, body, limits);
    task.format = read_format(body);
    task.think = read_think(body);
    for (const char* name : {"thinking_budget_tokens", "reasoning_budget", "thinking_budget"})
        if (const auto budget = integer_field(body, name, -1, INT32_MAX)) task.thinking_budget = uint32_t(*budget); // -1: none
    task.sampling = read_sampling(service, body);
    task.sampling.logprobs = bool_field(body, "logprobs").value_or(false);
    const auto top = integer_field(body, "top_logprobs", 0, limits.top_logprobs);
    if (top && *top > 0 && !task.sampling.logprobs)
        bad_request("top_logprobs", "\"top_logprobs\" is {}, but \"logprobs\" is not true", *top);
    task.sampling.top_logprobs = uint32_t(top.value_or(0));
    return task;
}

} // namespace tq::server
