// The endpoints. Each answers one request; an ApiError that it throws becomes the reply in the envelope of its API.
#pragma once
#include "tools/server/server.h"
#include "tools/server/service.h"

namespace tq::server {

// OpenAI's.
HttpReply chat_completions(Service& service, const HttpRequest& request);
HttpReply completions(Service& service, const HttpRequest& request);
HttpReply responses(Service& service, const HttpRequest& request);
HttpReply response_input_tokens(Service& service, const HttpRequest& request); // of a prompt, without an answer
HttpReply stored_response(Service& service, const HttpRequest& request);       // /v1/responses/{id}: none is stored
HttpReply embeddings(Service& service, const HttpRequest& request);
HttpReply list_models(Service& service, const HttpRequest& request); // for Codex and Anthropic's clients, too
// Anthropic's.
HttpReply messages(Service& service, const HttpRequest& request);
HttpReply count_tokens(Service& service, const HttpRequest& request);
// Jina's, as llama.cpp has it.
HttpReply rerank(Service& service, const HttpRequest& request);
// Ollama's.
HttpReply ollama_chat(Service& service, const HttpRequest& request);
HttpReply ollama_generate(Service& service, const HttpRequest& request);
HttpReply ollama_embed(Service& service, const HttpRequest& request);
HttpReply ollama_embeddings(Service& service, const HttpRequest& request); // of one prompt: the older form
HttpReply ollama_tags(Service& service, const HttpRequest& request);
HttpReply ollama_ps(Service& service, const HttpRequest& request);
HttpReply ollama_show(Service& service, const HttpRequest& request);
HttpReply ollama_models(Service& service, const HttpRequest& request); // pull, push, create, copy, delete: 404 with what to do
HttpReply ollama_version(Service& service, const HttpRequest& request);
// llama.cpp's.
HttpReply completion(Service& service, const HttpRequest& request);
HttpReply infill(Service& service, const HttpRequest& request);
HttpReply props(Service& service, const HttpRequest& request);
HttpReply slots(Service& service, const HttpRequest& request);
HttpReply metrics(Service& service, const HttpRequest& request);
HttpReply tokenize(Service& service, const HttpRequest& request);
HttpReply tokenizer_info(Service& service, const HttpRequest& request); // vLLM's
HttpReply embedding(Service& service, const HttpRequest& request);      // its list of {index, embedding: [[...]]}
HttpReply detokenize(Service& service, const HttpRequest& request);
HttpReply apply_template(Service& service, const HttpRequest& request);

// Our own: pages of a prompt, for `--prefill-from` of another machine.
HttpReply prefill(Service& service, const HttpRequest& request);

// Lists the endpoints by method and path. `service` must outlive them. /health and the page are not among them: they are answered
// while the model is loading.
std::vector<Endpoint> routes(Service& service);

} // namespace tq::server
