#include "tools/server/chat_parts.h"
#include "base/printable.h"
#include <algorithm>

namespace tq::server {

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

std::string required_name(const Json& object, std::string_view path) {
    std::string name = required_text(object, "name", path);
    if (name.empty()) bad_request(field_path(path, "name"), "{}.name is empty: a tool must have a name", path);
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

void Conversation::lead(std::string_view text) {
    append_text(system_, text, "\n\n");
    has_system_ = true;
}

void Conversation::turn(const char* role, const std::string& text) { messages_.push_back({{"role", role}, {"content", text}}); }

bool Conversation::ends_with_answer() const { return !messages_.empty() && messages_.back().at("role") == "assistant"; }

Json& Conversation::assistant() {
    if (!ends_with_answer()) messages_.push_back({{"role", "assistant"}, {"content", ""}});
    return messages_.back();
}

void Conversation::append(const char* name, const std::string& text) {
    Json& whole = assistant()[name];
    if (whole.is_null()) whole = "";
    append_text(whole.get_ref<std::string&>(), text, "\n");
}

void Conversation::reasoning(const std::string& text) { append("reasoning_content", text); }

void Conversation::answer(const std::string& text) { append("content", text); }

void Conversation::call(const std::string& id, const std::string& name, Json arguments) {
    assistant()["tool_calls"].push_back(
        {{"id", id}, {"type", "function"}, {"function", {{"name", name}, {"arguments", std::move(arguments)}}}});
}

void Conversation::result(const std::string& id, const std::string& text) {
    messages_.push_back({{"role", "tool"}, {"tool_call_id", id}, {"content", text}});
}

Json Conversation::take() {
    if (has_system_) messages_.insert(messages_.begin(), Json{{"role", "system"}, {"content", system_}});
    return std::move(messages_);
}

Json function_tool(const std::string& name, const std::optional<std::string>& description, const Json* parameters) {
    Json function = {{"name", name}};
    if (description) function["description"] = *description;
    if (parameters) function["parameters"] = *parameters;
    return {{"type", "function"}, {"function", std::move(function)}};
}

void require_tool(ChatTask& task, const std::string& name, std::string_view path) {
    const bool known = std::any_of(task.tools.begin(), task.tools.end(),
                                   [&](const Json& tool) { return tool.at("function").at("name") == name; });
    if (!known)
        bad_request(std::string(path), "{} asks for the tool \"{}\", which is not a function among \"tools\"", path,
                    printable(name));
    task.tool_choice = ToolChoice::named;
    task.tool_name = name;
}

void require_any_tool(ChatTask& task, std::string_view path) {
    if (task.tools.empty()) bad_request(std::string(path), "{} asks for a call, but there is no function among \"tools\"", path);
    task.tool_choice = ToolChoice::required;
}

Format read_format(const Json* format, std::string_view path) {
    if (!format) return {};
    const std::string type = required_text(*format, "type", path);
    if (type == "text") return {};
    if (type == "json_object") return {Format::Kind::json_object, {}, {}};
    if (type == "json_schema") return {Format::Kind::json_schema, required_object(*format, "schema", path), {}};
    bad_request(field_path(path, "type"), "{} is \"{}\", but must be text, json_object or json_schema", field_path(path, "type"),
                printable(type));
}

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
