// A request of Anthropic's Messages API as the task that all APIs of chats share. Fields that this server cannot honour, and that
// do not make the answer wrong, are noted in `ignored` and named once in the log: tools that run on Anthropic's servers,
// containers, an effort of another name. A request whose answer would be wrong is refused: a thread whose earlier messages are
// not here.
#include "base/printable.h"
#include "tools/server/anthropic/messages.h"

namespace tq::server::messages_api {
namespace {

// Tools with a type of their own run on Anthropic's servers, or have schemas that only its models know.
void read_functions(ChatTask& task, const Json& body, const Limits& limits) {
    const Json* tools = array_field(body, "tools", limits.tools);
    for (size_t i = 0; tools && i < tools->size(); ++i) {
        const std::string path = entry_path("tools", i);
        const Json& tool = object_entry(*tools, i, "tools");
        const std::string type = text_field(tool, "type", path).value_or("custom");
        if (type != "custom") {
            task.ignored.insert(fmt::format("tools of the type {}", printable(type, 40)));
            continue;
        }
        add_function(task, tool,
                     function_tool(required_name(tool, path), text_field(tool, "description", path),
                                   &required_object(tool, "input_schema", path)),
                     path);
    }
}

// The effort says how much to think; it does not change whether to think.
void read_output_effort(ChatTask& task, const Json& body) {
    const Json* config = object_field(body, "output_config");
    const auto effort = config ? text_field(*config, "effort", "output_config") : std::nullopt;
    const auto think = task.think;
    if (effort && !read_effort(task, *effort)) task.ignored.insert(fmt::format("the effort \"{}\"", printable(*effort, 40)));
    task.think = think;
}

void read_stop_sequences(Sampling& sampling, const Json& body, const Limits& limits) {
    const Json* list = array_field(body, "stop_sequences", limits.stop_strings);
    for (size_t i = 0; list && i < list->size(); ++i) {
        const Json& text = (*list)[i];
        if (!text.is_string()) bad_request(entry_path("stop_sequences", i), "stop_sequences[{}] must be a text", i);
        if (text != "") sampling.stop.push_back(text.get<std::string>());
    }
}

// Anthropic's library keeps conversations in threads on the server if it can, and sends all of it after this error.
void refuse_thread(const Json& body) {
    const Json* thread = object_field(body, "thread");
    if (thread && text_field(*thread, "type", "thread") == "continue")
        throw ApiError(400, "invalid_request_error",
                       "messages of a thread are not stored here, so that none can be continued: send the whole conversation",
                       "thread", "thread_unsupported_request");
}

} // namespace

Request read_prompt(const Json& body, const Limits& limits) {
    Request request;
    ChatTask& task = request.task;
    refuse_thread(body);
    Conversation conversation;
    read_system(conversation, body, "system", limits, "");
    constexpr std::string_view roles[]{"user", "assistant", "system", "developer"};
    const Json* messages = array_field(body, "messages", limits.messages);
    if (!messages || messages->empty()) bad_request("messages", "messages must be a list of at least one message");
    for (size_t i = 0; i < messages->size(); ++i)
        read_message(conversation, object_entry(*messages, i, "messages"), roles, limits, entry_path("messages", i));
    task.messages = conversation.take();
    task.ignored = conversation.ignored();
    read_functions(task, body, limits);
    read_tool_choice(task, body, limits);
    read_thinking(task, body);
    read_output_effort(task, body);
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
    if (const Json* format = object_field(body, "output_format")) // of the beta
        request.task.format = read_format(format, "output_format");
    if (const Json* format = config ? object_field(*config, "format", "output_config") : nullptr)
        request.task.format = read_format(format, "output_config.format");
    request.stream = bool_field(body, "stream").value_or(false);
    return request;
}

} // namespace tq::server::messages_api
