// The endpoints by method and path. Paths without /v1 are llama.cpp's, of its own form or that of the one with /v1.
#include "tools/server/handlers.h"

namespace tq::server {

std::vector<Endpoint> routes(Service& service) {
    using Answer = HttpReply (*)(Service&, const HttpRequest&);
    std::vector<Endpoint> all;
    const auto add = [&](const char* method, const char* path, Answer answer, Envelope envelope = Envelope::openai) {
        all.push_back(
            {method, path, [&service, answer](const HttpRequest& request) { return answer(service, request); }, envelope});
    };
    add("POST", "/v1/chat/completions", chat_completions);
    add("POST", "/chat/completions", chat_completions);
    add("POST", "/v1/completions", completions);
    add("POST", "/v1/responses", responses);
    add("POST", "/responses", responses);
    add("POST", "/v1/responses/input_tokens", response_input_tokens);
    add("GET", "/v1/responses/*", stored_response);
    add("DELETE", "/v1/responses/*", stored_response);
    add("POST", "/v1/responses/*", stored_response);
    add("POST", "/v1/embeddings", embeddings);
    add("GET", "/v1/models", list_models);
    add("GET", "/v1/models/*", list_models);
    add("GET", "/models", list_models);
    add("POST", "/v1/messages", messages, Envelope::anthropic);
    add("POST", "/v1/messages/count_tokens", count_tokens, Envelope::anthropic);
    add("POST", "/v1/rerank", rerank);
    add("POST", "/v1/reranking", rerank);
    add("POST", "/rerank", rerank);
    add("POST", "/reranking", rerank);
    add("POST", "/v2/rerank", rerank);
    add("POST", "/v1/prefill", prefill);
    add("POST", "/completion", completion);
    add("POST", "/completions", completion);
    add("POST", "/infill", infill);
    add("POST", "/embedding", embedding);
    add("POST", "/embeddings", embedding);
    add("GET", "/props", props);
    add("GET", "/slots", slots);
    add("GET", "/metrics", metrics);
    add("POST", "/tokenize", tokenize);
    add("POST", "/detokenize", detokenize);
    add("GET", "/tokenizer_info", tokenizer_info);
    add("POST", "/apply-template", apply_template);
    constexpr Envelope ollama = Envelope::ollama;
    add("POST", "/api/chat", ollama_chat, ollama);
    add("POST", "/api/generate", ollama_generate, ollama);
    add("POST", "/api/embed", ollama_embed, ollama);
    add("POST", "/api/embeddings", ollama_embeddings, ollama);
    add("GET", "/api/tags", ollama_tags, ollama);
    add("GET", "/api/ps", ollama_ps, ollama);
    add("POST", "/api/show", ollama_show, ollama);
    add("GET", "/api/version", ollama_version, ollama);
    for (const char* path : {"/api/pull", "/api/push", "/api/create", "/api/copy", "/api/blobs/*"})
        add("POST", path, ollama_models, ollama);
    add("DELETE", "/api/delete", ollama_models, ollama);
    return all;
}

} // namespace tq::server
