// GET /v1/models and /v1/models/{id}: one model, in the forms that OpenAI's clients, Codex and Anthropic's clients read.
// The server has one model. A list has it twice, as `data` for OpenAI's clients and as `models` in llama.cpp's shape, which Codex
// reads. Anthropic's clients use the same paths, and are known by their header anthropic-version; errors have their form, too.
// The model is found by its name in the API and by its own.
#include "tools/server/openai/models.h"
#include "base/printable.h"
#include "model/weights/mixture.h"
#include "tools/server/handlers.h"
#include "tools/server/openai/reply.h"
#include <chrono>

namespace tq::server {

uint64_t parameter_count(const Model& model) {
    uint64_t count = 0;
    for_each_tensor(model.weights, [&](const Tensor& tensor) { count += uint64_t(tensor.rows) * tensor.cols; });
    return count;
}

std::string weight_type_text(const Model& model) {
    const std::vector<FormatBytes> formats = bytes_by_format(model.weights);
    return formats.empty() ? "" : type_name(formats[0].type);
}

namespace {

Json openai_model(const Service& service) {
    const Model& model = service.model;
    return {{"id", service.model_name()},
            {"object", "model"},
            {"created", service.options.started_unix_s},
            {"owned_by", "tq-run"},
            {"max_model_len", service.scheduler.context_size()},  // vLLM's name for meta.n_ctx
            {"context_length", service.scheduler.context_size()}, // others'
            {"meta",
             {{"n_ctx", service.scheduler.context_size()},
              {"n_ctx_train", model.config.max_position_embeddings},
              {"n_vocab", model.config.vocab_size},
              {"n_embd", model.config.hidden_size},
              {"n_params", parameter_count(model)},
              {"size", model.weights.bytes()}}}};
}

// The fields are llama.cpp's; Codex reads slug and display_name.
Json codex_model(const Service& service) {
    return {{"name", service.model_name()},
            {"model", service.model_name()},
            {"slug", service.model_name()},
            {"display_name", service.model_name()},
            {"type", "model"},
            {"size", service.model.weights.bytes()},
            {"capabilities", Json::array({service.options.embeddings ? "embedding" : "completion"})},
            {"context_window", service.scheduler.context_size()},
            {"details", {{"format", "gguf"}, {"family", service.model.config.architecture->name}}}};
}

Json anthropic_model(const Service& service) {
    const std::chrono::system_clock::time_point created{std::chrono::seconds(service.options.started_unix_s)};
    return {{"type", "model"},
            {"id", service.model_name()},
            {"display_name", service.model_name()},
            {"created_at", utc_text(created)}};
}

} // namespace

HttpReply list_models(Service& service, const HttpRequest& request) {
    const bool is_anthropic = !request.header("anthropic-version").empty();
    constexpr std::string_view below = "/v1/models/";
    const std::string& name = service.model_name();
    if (request.path.starts_with(below)) {
        const std::string id = request.path.substr(below.size());
        if (id != name && id != service.model.name) {
            const ApiError error(404, "not_found_error",
                                 fmt::format("the model {} is not here: this server has {}", printable(id, 100), name), "model",
                                 "model_not_found");
            return error_reply(error, is_anthropic ? Envelope::anthropic : Envelope::openai);
        }
        return json_reply(is_anthropic ? anthropic_model(service) : openai_model(service));
    }
    if (is_anthropic)
        return json_reply(
            {{"data", Json::array({anthropic_model(service)})}, {"has_more", false}, {"first_id", name}, {"last_id", name}});
    return json_reply(
        {{"object", "list"}, {"data", Json::array({openai_model(service)})}, {"models", Json::array({codex_model(service)})}});
}

} // namespace tq::server
