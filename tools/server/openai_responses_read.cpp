#include "base/json.h"
#include "base/printable.h"
#include "tools/server/openai_responses.h"
#include <algorithm>

namespace tq::server::responses_api {
namespace {

// The text of a message's content, or of a function's output: a text, or a list of parts. `images`: what is read for parts that
// are no text; without it they are refused.
std::string read_parts(const Json& item, const char* name, const Limits& limits, const std::string& path, bool images) {
    const std::string field = field_path(path, name);
    const Json* content = member(item, name);
    if (!content) bad_request(field, "{} is missing: it must be a text or a list of parts", field);
    if (content->is_string()) return content->get<std::string>();
    if (!content->is_array()) bad_request(field, "{} must be a text or a list of parts", field);
    const Json& parts = *array_field(item, name, limits.messages, path);
    std::string text;
    for (size_t i = 0; i < parts.size(); ++i) {
        const std::string part_path = entry_path(field, i);
        const Json& part = object_entry(parts, i, field);
        const std::string type = required_text(part, "type", part_path);
        if (type == "input_text" || type == "output_text" || type == "text")
            text += required_text(part, "text", part_path);
        else if (type == "refusal")
            text += required_text(part, "refusal", part_path);
        else if (images && type.starts_with("input_"))
            text += fmt::format("[{} is left out: the model reads only text]", type);
        else
            bad_request(field_path(part_path, "type"), "{} has the type \"{}\", but this model reads only text", part_path,
                        printable(type));
    }
    return text;
}

// Clients send reasoning back as they got it: in its content, or sealed. Summaries are other models'.
std::string read_reasoning(const Json& item, const Limits& limits, const std::string& path) {
    const std::string sealed = text_field(item, "encrypted_content", path).value_or("");
    std::string text;
    if (sealed.starts_with(reasoning_seal)) return sealed.substr(reasoning_seal.size());
    const Json* parts = array_field(item, "content", limits.messages, path);
    const std::string field = field_path(path, "content");
    for (size_t i = 0; parts && i < parts->size(); ++i)
        append_text(text, required_text(object_entry(*parts, i, field), "text", entry_path(field, i)), "\n");
    return text;
}

// The arguments of a call stay the text that the model wrote. A text that is no object would be an error of the template.
std::string read_arguments(const Json& item, const std::string& path) {
    const std::string field = field_path(path, "arguments");
    std::string text = required_text(item, "arguments", path);
    if (text.empty()) return "{}"; // some clients leave it empty where there are none
    try {
        if (build_json<Json>(text, field, {.repeated_keys = true}).is_object()) return text;
    } catch (const Error& error) {
        throw ApiError(400, "invalid_request_error", error.what(), field);
    }
    bad_request(field, "{} must be the text of a JSON object", field);
}

// Reads one item of the input after the other into a conversation.
class ItemReader {
  public:
    ItemReader(Conversation& conversation, const Limits& limits) : conversation_(conversation), limits_(limits) {}

    void read(const Json& item, const std::string& path) {
        const std::string type = text_field(item, "type", path).value_or("message");
        if (type == "message")
            read_message(item, path);
        else if (type == "reasoning")
            conversation_.reasoning(read_reasoning(item, limits_, path));
        else if (type == "function_call")
            conversation_.call(required_text(item, "call_id", path), required_text(item, "name", path),
                               read_arguments(item, path));
        else if (type == "custom_tool_call")
            conversation_.call(required_text(item, "call_id", path), required_text(item, "name", path),
                               {{"input", required_text(item, "input", path)}});
        else if (type == "function_call_output" || type == "custom_tool_call_output")
            conversation_.result(required_text(item, "call_id", path), read_parts(item, "output", limits_, path, true));
        else if (type == "item_reference")
            bad_request(path, "{} refers to an item of an earlier response, but responses are not stored: send the item itself",
                        path);
        else if (type != "web_search_call" && type != "file_search_call" && type != "image_generation_call")
            bad_request(field_path(path, "type"), "{} has the type \"{}\", which is not supported", path, printable(type));
    }

  private:
    void read_message(const Json& item, const std::string& path) {
        const std::string role = required_text(item, "role", path);
        const std::string text = read_parts(item, "content", limits_, path, false);
        if (role == "system" || role == "developer")
            conversation_.lead(text);
        else if (role == "user")
            conversation_.turn("user", text);
        else if (role == "assistant")
            conversation_.answer(text);
        else
            bad_request(field_path(path, "role"), "{} has the role \"{}\", but known are user, assistant, system and developer",
                        path, printable(role));
    }

    Conversation& conversation_;
    const Limits& limits_;
};

// What would need responses that are stored is refused: an answer without it would be wrong.
void refuse_stored(const Json& body) {
    if (member(body, "previous_response_id"))
        bad_request("previous_response_id",
                    "previous_response_id is not supported, because responses are not stored (store): send "
                    "the whole conversation as input");
    if (member(body, "conversation"))
        bad_request("conversation",
                    "conversation is not supported, because nothing is stored: send the whole conversation as input");
    if (member(body, "prompt"))
        bad_request("prompt", "prompt is not supported, because no prompts are stored: send instructions and input");
    if (bool_field(body, "background").value_or(false))
        bad_request("background", "background is not supported, because responses are not stored: use stream");
}

void read_custom_tool(Request& request, const Json& tool, const std::string& name, const std::string& path) {
    std::string description = text_field(tool, "description", path).value_or("");
    if (const Json* format = object_field(tool, "format", path)) {
        const auto definition = text_field(*format, "definition", field_path(path, "format"));
        if (definition) append_text(description, fmt::format("The input follows this grammar:\n{}", *definition), "\n\n");
    }
    const Json parameters = {{"type", "object"},
                             {"properties", {{"input", {{"type", "string"}}}}},
                             {"required", {"input"}},
                             {"additionalProperties", false}};
    request.task.tools.push_back(function_tool(name, description, &parameters));
    request.custom_tools.insert(name);
}

// Tools of other types are those of OpenAI's servers or of newer clients: the model is not offered them.
void read_functions(Request& request, const Json& body, const Limits& limits) {
    const Json* tools = array_field(body, "tools", limits.tools);
    for (size_t i = 0; tools && i < tools->size(); ++i) {
        const std::string path = entry_path("tools", i);
        const Json& tool = object_entry(*tools, i, "tools");
        const std::string type = required_text(tool, "type", path);
        if (type == "function")
            request.task.tools.push_back(function_tool(required_name(tool, path), text_field(tool, "description", path),
                                                       object_field(tool, "parameters", path)));
        else if (type == "custom")
            read_custom_tool(request, tool, required_name(tool, path), path);
    }
}

// {"type": "allowed_tools", "mode": "auto" | "required", "tools": [{"type": "function", "name"}]}
void allow_tools(ChatTask& task, const Json& choice, const Limits& limits) {
    const Json* allowed = array_field(choice, "tools", limits.tools, "tool_choice");
    std::set<std::string> names;
    for (size_t i = 0; allowed && i < allowed->size(); ++i)
        names.insert(
            text_field(object_entry(*allowed, i, "tool_choice.tools"), "name", entry_path("tool_choice.tools", i)).value_or(""));
    Json kept = Json::array();
    for (const Json& tool : task.tools)
        if (names.count(tool.at("function").at("name").get<std::string>())) kept.push_back(tool);
    task.tools = std::move(kept);
    if (text_field(choice, "mode", "tool_choice").value_or("auto") == "required") require_any_tool(task, "tool_choice");
}

void read_choice(ChatTask& task, const Json& body, const Limits& limits) {
    const Json* choice = member(body, "tool_choice");
    if (!choice || *choice == "auto") return;
    if (*choice == "none") {
        task.tool_choice = ToolChoice::none;
        return;
    }
    if (*choice == "required") return require_any_tool(task, "tool_choice");
    if (!choice->is_object()) bad_request("tool_choice", "tool_choice must be auto, none, required, or an object");
    const std::string type = required_text(*choice, "type", "tool_choice");
    if (type == "allowed_tools") return allow_tools(task, *choice, limits);
    if (type != "function" && type != "custom")
        bad_request("tool_choice.type",
                    "tool_choice has the type \"{}\", but this server calls only tools of the types function and custom",
                    printable(type));
    require_tool(task, required_text(*choice, "name", "tool_choice"), "tool_choice");
}

void read_reasoning_effort(ChatTask& task, const Json& body) {
    const Json* reasoning = object_field(body, "reasoning");
    const auto effort = reasoning ? text_field(*reasoning, "effort", "reasoning") : std::nullopt;
    if (effort == "none" || effort == "minimal")
        task.think = false;
    else if (effort)
        task.think = true;
}

Json member_or(const Json& body, const char* name, Json otherwise) {
    const Json* value = member(body, name);
    return value ? *value : std::move(otherwise);
}

Json echo_of(const Json& body, const ChatTask& task) {
    return {{"instructions", member_or(body, "instructions", nullptr)},
            {"max_output_tokens", member_or(body, "max_output_tokens", nullptr)},
            {"parallel_tool_calls", task.parallel_tool_calls},
            {"previous_response_id", nullptr},
            {"reasoning", member_or(body, "reasoning", {{"effort", nullptr}, {"summary", nullptr}})},
            {"store", false},
            {"text", member_or(body, "text", {{"format", {{"type", "text"}}}})},
            {"tool_choice", member_or(body, "tool_choice", "auto")},
            {"tools", member_or(body, "tools", Json::array())},
            {"top_logprobs", task.sampling.top_logprobs},
            {"truncation", "disabled"},
            {"user", nullptr},
            {"metadata", member_or(body, "metadata", Json::object())}};
}

// "include": what the response holds beyond its text. Names that are not known are for tools that are not offered here.
void read_include(Request& request, const Json& body, const Limits& limits) {
    const Json* include = array_field(body, "include", limits.tools);
    const auto has = [&](const char* name) {
        return include && std::find(include->begin(), include->end(), name) != include->end();
    };
    request.sealed_reasoning = has("reasoning.encrypted_content");
    Sampling& sampling = request.task.sampling;
    const auto top = integer_field(body, "top_logprobs", 0, limits.top_logprobs);
    sampling.logprobs = has("message.output_text.logprobs") || top.value_or(0) > 0;
    sampling.top_logprobs = uint32_t(top.value_or(0));
}

} // namespace

Json read_items(const Json& body, const Limits& limits) {
    Conversation conversation;
    if (const auto instructions = text_field(body, "instructions")) conversation.lead(*instructions);
    const Json* input = member(body, "input");
    if (!input || !(input->is_string() || input->is_array())) bad_request("input", "input must be a text or a list of items");
    if (input->is_string()) {
        conversation.turn("user", input->get<std::string>());
    } else {
        const Json& items = *array_field(body, "input", limits.messages);
        for (size_t i = 0; i < items.size(); ++i)
            ItemReader(conversation, limits).read(object_entry(items, i, "input"), entry_path("input", i));
    }
    if (conversation.empty()) conversation.turn("user", ""); // clients probe a server with no input at all
    return conversation.take();
}

Request read(const Json& body, const Limits& limits) {
    refuse_stored(body);
    Request request;
    ChatTask& task = request.task;
    task.messages = read_items(body, limits);
    read_functions(request, body, limits);
    task.parallel_tool_calls = bool_field(body, "parallel_tool_calls").value_or(true);
    read_choice(task, body, limits);
    read_reasoning_effort(task, body);
    if (const Json* text = object_field(body, "text"))
        task.format = read_format(object_field(*text, "format", "text"), "text.format");
    if (const auto tokens = integer_field(body, "max_output_tokens", 1, INT32_MAX)) task.sampling.max_tokens = uint32_t(*tokens);
    object_field(body, "metadata");
    request.stream = bool_field(body, "stream").value_or(false);
    read_include(request, body, limits);
    request.echo = echo_of(body, task);
    return request;
}

} // namespace tq::server::responses_api
