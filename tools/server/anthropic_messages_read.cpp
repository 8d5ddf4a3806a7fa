#include "base/printable.h"
#include "tools/server/anthropic_messages.h"

namespace tq::server::messages_api {
namespace {

// Claude Code begins its prompts with a line that changes with every request: it would make every prompt a new one.
std::string_view without_billing(std::string_view text) {
    if (!text.starts_with("x-anthropic-billing-header:")) return text;
    const size_t end = text.find('\n');
    return end == text.npos ? std::string_view() : text.substr(end + 1);
}

[[noreturn]] void refuse_type(const std::string& type, const std::string& path) {
    if (type == "image" || type == "document")
        bad_request(field_path(path, "type"), "{} is of the type \"{}\", but this model reads only text", path, type);
    bad_request(field_path(path, "type"), "{} has the type \"{}\", which is not supported", path, printable(type));
}

// Calls `read` with each block of a content, its type and path. A text is a block.
template <class Read>
void each_block(const Json& object, const char* name, const Limits& limits, std::string_view path, Read read) {
    const Json* content = member(object, name);
    const std::string field = field_path(path, name);
    if (!content) return;
    if (content->is_string()) return read({{"type", "text"}, {"text", *content}}, "text", field);
    if (!content->is_array()) bad_request(field, "{} must be a text or a list of content blocks", field);
    const Json& blocks = *array_field(object, name, limits.messages, path);
    for (size_t i = 0; i < blocks.size(); ++i) {
        const std::string block_path = entry_path(field, i);
        const Json& block = object_entry(blocks, i, field);
        read(block, required_text(block, "type", block_path), block_path);
    }
}

void read_system(Conversation& conversation, const Json& body, const Limits& limits) {
    each_block(body, "system", limits, "", [&](const Json& block, const std::string& type, const std::string& path) {
        if (type != "text") refuse_type(type, path);
        const std::string text = required_text(block, "text", path);
        if (const std::string_view rest = without_billing(text); !rest.empty()) conversation.lead(rest);
    });
}

// What a tool shows beside text is left out, and the model is told so: a client would send it again with every request.
std::string read_result(const Json& block, const Limits& limits, const std::string& path) {
    std::string text;
    each_block(block, "content", limits, path, [&](const Json& part, const std::string& type, const std::string& part_path) {
        if (type == "text")
            append_text(text, required_text(part, "text", part_path), "\n");
        else
            append_text(text, fmt::format("[{} is left out: the model reads only text]", printable(type, 40)), "\n");
    });
    if (bool_field(block, "is_error", path).value_or(false)) text = fmt::format("Error: {}", text);
    return text;
}

void read_user(Conversation& conversation, const Json& message, const Limits& limits, const std::string& path) {
    std::string text;
    bool has_text = false, has_result = false;
    each_block(message, "content", limits, path, [&](const Json& block, const std::string& type, const std::string& block_path) {
        if (type == "tool_result") {
            conversation.result(required_text(block, "tool_use_id", block_path), read_result(block, limits, block_path));
            has_result = true;
        } else if (type == "text") {
            append_text(text, required_text(block, "text", block_path), "\n");
            has_text = true;
        } else {
            refuse_type(type, block_path);
        }
    });
    if (has_text || !has_result) conversation.turn("user", text);
}

void read_assistant(Conversation& conversation, const Json& message, const Limits& limits, const std::string& path) {
    conversation.answer("");
    each_block(message, "content", limits, path, [&](const Json& block, const std::string& type, const std::string& block_path) {
        if (type == "text")
            conversation.answer(required_text(block, "text", block_path));
        else if (type == "thinking")
            conversation.reasoning(required_text(block, "thinking", block_path));
        else if (type == "tool_use")
            conversation.call(required_text(block, "id", block_path), required_text(block, "name", block_path),
                              required_object(block, "input", block_path));
        else if (type != "redacted_thinking" && type != "server_tool_use" && !type.ends_with("_tool_result")) // of other models
            refuse_type(type, block_path);
    });
}

void read_messages(Conversation& conversation, const Json& body, const Limits& limits) {
    const Json* messages = array_field(body, "messages", limits.messages);
    if (!messages || messages->empty()) bad_request("messages", "messages must be a list of at least one message");
    for (size_t i = 0; i < messages->size(); ++i)
        read_message(conversation, object_entry(*messages, i, "messages"), limits, entry_path("messages", i));
}

// Tools with a type of their own run on Anthropic's servers, or have schemas that only its models know.
void read_functions(ChatTask& task, const Json& body, const Limits& limits) {
    const Json* tools = array_field(body, "tools", limits.tools);
    for (size_t i = 0; tools && i < tools->size(); ++i) {
        const std::string path = entry_path("tools", i);
        const Json& tool = object_entry(*tools, i, "tools");
        if (text_field(tool, "type", path).value_or("custom") != "custom") continue;
        task.tools.push_back(function_tool(required_name(tool, path), text_field(tool, "description", path),
                                           &required_object(tool, "input_schema", path)));
    }
}

void read_choice(ChatTask& task, const Json& body) {
    const Json* choice = object_field(body, "tool_choice");
    if (!choice) return;
    const std::string path = "tool_choice", type = required_text(*choice, "type", path);
    task.parallel_tool_calls = !bool_field(*choice, "disable_parallel_tool_use", path).value_or(false);
    if (type == "none")
        task.tool_choice = ToolChoice::none;
    else if (type == "any")
        require_any_tool(task, path);
    else if (type == "tool")
        require_tool(task, required_text(*choice, "name", path), path);
    else if (type != "auto")
        bad_request("tool_choice.type", "tool_choice.type is \"{}\", but must be auto, any, tool or none", printable(type));
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

void read_stop_sequences(Sampling& sampling, const Json& body, const Limits& limits) {
    const Json* list = array_field(body, "stop_sequences", limits.stop_strings);
    for (size_t i = 0; list && i < list->size(); ++i) {
        const Json& text = (*list)[i];
        if (!text.is_string()) bad_request(entry_path("stop_sequences", i), "stop_sequences[{}] must be a text", i);
        if (text != "") sampling.stop.push_back(text.get<std::string>());
    }
}

// Anthropic's library keeps conversations in threads on the server where it can, and sends all of it after this error.
void refuse_thread(const Json& body) {
    const Json* thread = object_field(body, "thread");
    if (thread && text_field(*thread, "type", "thread") == "continue")
        throw ApiError(400, "invalid_request_error",
                       "messages of a thread are not stored here, so that none can be continued: send the whole conversation",
                       "thread", "thread_unsupported_request");
}

} // namespace

void read_message(Conversation& conversation, const Json& message, const Limits& limits, const std::string& path) {
    const std::string role = required_text(message, "role", path);
    if (!member(message, "content"))
        bad_request(field_path(path, "content"), "{}.content is missing: it must be a text or a list of content blocks", path);
    if (role == "user") return read_user(conversation, message, limits, path);
    if (role == "assistant") return read_assistant(conversation, message, limits, path);
    if (role != "system" && role != "developer")
        bad_request(field_path(path, "role"), "{} has the role \"{}\", but known are user and assistant", path, printable(role));
    std::string text;
    each_block(message, "content", limits, path, [&](const Json& block, const std::string& type, const std::string& block_path) {
        if (type != "text") refuse_type(type, block_path);
        append_text(text, required_text(block, "text", block_path), "\n");
    });
    if (conversation.empty()) return conversation.lead(text);
    conversation.turn("system", text); // where it stands, so that what precedes it stays in the cache
}

Request read_prompt(const Json& body, const Limits& limits) {
    Request request;
    ChatTask& task = request.task;
    refuse_thread(body);
    Conversation conversation;
    read_system(conversation, body, limits);
    read_messages(conversation, body, limits);
    task.messages = conversation.take();
    read_functions(task, body, limits);
    read_choice(task, body);
    read_thinking(task, body);
    return request;
}

Request read(const Json& body, const Limits& limits) {
    Request request = read_prompt(body, limits);
    Sampling& sampling = request.task.sampling;
    const auto tokens = integer_field(body, "max_tokens", 1, INT32_MAX);
    if (!tokens) bad_request("max_tokens", "max_tokens is missing: it must be an integer");
    sampling.max_tokens = uint32_t(*tokens);
    read_stop_sequences(sampling, body, limits);
    const Json* config = object_field(body, "output_config");
    if (const Json* format = config ? object_field(*config, "format", "output_config") : nullptr)
        request.task.format = read_format(format, "output_config.format");
    request.stream = bool_field(body, "stream").value_or(false);
    return request;
}

} // namespace tq::server::messages_api
