// A request of /v1/chat/completions as the task that all APIs of chats share. Fields of other servers that have no effect here
// are noted in `ignored`, and named in the log.
#include "tools/server/openai/messages.h"
#include "base/printable.h"
#include "tools/server/chat_parts.h"
#include "tools/server/conversation.h"
#include "tools/server/openai/reply.h"
#include <algorithm>

namespace tq::server {
namespace {

// Whether a request says that the model thinks, and how much: the most specific field counts.
void read_chat_thinking(ChatTask& task, const Json& body) {
    read_reasoning(task, body);
    read_thinking(task, body);
    const auto read_from = [&](const Json& object, const char* path) {
        if (const auto effort = text_field(object, "reasoning_effort", path); effort && !read_effort(task, *effort)) {
            const std::string field = field_path(path, "reasoning_effort");
            bad_request(field, "\"{}\" must be none, minimal, low, medium, high, xhigh, max or auto, but is \"{}\"", field,
                        printable(*effort));
        }
        if (const auto keeps = bool_field(object, "preserve_thinking", path)) task.preserve_thinking = keeps;
    };
    const Json* arguments = object_field(body, "chat_template_kwargs");
    read_from(body, "");
    if (arguments) read_from(*arguments, "chat_template_kwargs");
    if (const auto think = bool_field(body, "enable_thinking")) task.think = think;
    for (const char* name : {"thinking", "enable_thinking"})
        if (const auto think = arguments ? bool_field(*arguments, name, "chat_template_kwargs") : std::nullopt)
            task.think = think;
    constexpr std::string_view known[]{"thinking", "enable_thinking", "reasoning_effort", "preserve_thinking"};
    if (arguments)
        for (const auto& [name, value] : arguments->items())
            if (std::ranges::find(known, name) == std::end(known))
                task.ignored.insert(fmt::format("the argument \"{}\" of a chat template", printable(name, 40)));
}

// A last message of the assistant is always gone on with, which these fields of vLLM ask for.
void read_continuation(const Json& body) {
    if (bool_field(body, "continue_final_message").value_or(false)) bool_field(body, "add_generation_prompt");
}

} // namespace

static Conversation read_conversation(const Json& body, const Limits& limits) {
    const Json* given = array_field(body, "messages", limits.messages);
    if (!given || given->empty()) bad_request("messages", "\"messages\" must be a list of at least one message");
    constexpr std::string_view roles[]{"system", "developer", "user", "assistant", "tool", "function"};
    Conversation conversation;
    for (size_t i = 0; i < given->size(); ++i)
        read_message(conversation, object_entry(*given, i, "messages"), roles, limits, entry_path("messages", i));
    return conversation;
}

Json read_messages(const Json& body, const Limits& limits) { return read_conversation(body, limits).take(); }

ChatTask read_chat_task(const Service& service, const Json& body) {
    const Limits& limits = service.options.limits;
    ChatTask task;
    Conversation conversation = read_conversation(body, limits);
    task.messages = conversation.take();
    task.ignored = conversation.ignored();
    read_tools(task, body, limits);
    task.format = read_formats(body);
    read_chat_thinking(task, body);
    read_continuation(body);
    for (const char* name : {"thinking_budget_tokens", "reasoning_budget", "thinking_budget"})
        if (const auto budget = integer_field(body, name, -1, INT32_MAX)) task.thinking_budget = uint32_t(*budget); // -1: none
    task.sampling = read_sampling(service, body);
    read_logprobs(task.sampling, body, limits);
    return task;
}

void read_logprobs(Sampling& sampling, const Json& body, const Limits& limits) {
    sampling.logprobs = bool_field(body, "logprobs").value_or(false);
    const auto top = integer_field(body, "top_logprobs", 0, limits.top_logprobs);
    if (top && *top > 0 && !sampling.logprobs)
        bad_request("top_logprobs", "\"top_logprobs\" is {}, but \"logprobs\" is not true", *top);
    sampling.top_logprobs = uint32_t(top.value_or(0));
}

} // namespace tq::server
