#include "tools/server/openai/responses.h"
#include "tools/server/handlers.h"
#include "tools/server/ignored_fields.h"
#include <chrono>

namespace tq::server {

static responses_api::FindItem finder(Service& service, const HttpRequest& request) {
    return [&service, tenant = request.tenant](const std::string& id) { return service.items.find(tenant, id); };
}

HttpReply responses(Service& service, const HttpRequest& request) {
    return answer(service, request, read_body(service, request, [&](const Json& body) -> Asked {
                      const Limits& limits = service.options.limits;
                      responses_api::Request read = responses_api::read_with_items(body, limits, finder(service, request));
                      read_task_sampling(read.task, service, body);
                      const auto now = std::chrono::system_clock::now().time_since_epoch();
                      auto generation = std::make_shared<Generation>(service, read.task, request.tenant);
                      auto writer = std::make_shared<responses_api::Writer>(
                          read, service.model_name(), uint64_t(std::chrono::duration_cast<std::chrono::seconds>(now).count()));
                      writer->remember = [&service, tenant = request.tenant](const Json& item) {
                          service.items.put(tenant, item);
                      };
                      return {std::move(generation), std::move(writer), read.stream};
                  }));
}

HttpReply response_input_tokens(Service& service, const HttpRequest& request) {
    const Json body = parse_body(request.body, service.options.limits);
    const responses_api::Request read = responses_api::read_with_items(body, service.options.limits, finder(service, request));
    const size_t tokens = prompt_ids(service, read.task).size();
    return {.body = dump_text({{"object", "response.input_tokens"}, {"input_tokens", tokens}})};
}

HttpReply stored_response(Service&, const HttpRequest&) {
    throw ApiError(404, "not_found_error", "there is no such response: this server does not store responses");
}

} // namespace tq::server
