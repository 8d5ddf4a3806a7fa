#include "tools/server/anthropic/messages.h"
#include "tools/server/handlers.h"
#include "tools/server/ignored_fields.h"
#include "tools/server/prompt.h"

namespace tq::server {
namespace {

// With Anthropic's models there is no thinking unless it is asked for, by the request or by who started the server.
void choose_thinking(ChatTask& task, const Service& service) {
    if (!task.think) task.think = service.options.think.value_or(false);
}

// An error of length has the words by which Anthropic's clients know that they must shorten the conversation.
std::shared_ptr<Generation> start_message(Service& service, const ChatTask& task, const std::string& tenant) {
    try {
        return std::make_shared<Generation>(service, task, tenant);
    } catch (const TooLong& error) {
        throw ApiError(400, "invalid_request_error",
                       fmt::format("prompt is too long: {} tokens > {} maximum", error.tokens, service.scheduler.context_size()));
    }
}

} // namespace

HttpReply messages(Service& service, const HttpRequest& request) {
    return answer(service, request, read_body(service, request, [&](const Json& body) -> Asked {
                      messages_api::Request read = messages_api::read(body, service.options.limits);
                      choose_thinking(read.task, service);
                      read_task_sampling(read.task, service, body);
                      return {start_message(service, read.task, request.tenant),
                              std::make_shared<messages_api::Writer>(service.model_name(), read.stream), read.stream};
                  }));
}

HttpReply count_tokens(Service& service, const HttpRequest& request) {
    const Json body = parse_body(request.body, service.options.limits);
    messages_api::Request read = messages_api::read_prompt(body, service.options.limits);
    choose_thinking(read.task, service);
    return {.body = dump_text({{"input_tokens", prompt_ids(service, read.task).size()}})};
}

} // namespace tq::server
