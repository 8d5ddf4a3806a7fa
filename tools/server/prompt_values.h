// Prompts that are run for values, not for an answer: states for embeddings, or the logits of a few tokens.
#pragma once
#include "tools/server/api_error.h"
#include "tools/server/service.h"
#include <functional>
#include <string>
#include <vector>

namespace tq::server {

struct PromptValues {
    std::vector<std::vector<float>> values; // of each prompt: its state [hidden_size], or the logits of `scored`
    uint64_t prompt_tokens = 0;
};

// Runs the prompts, as many at a time as keep the slots busy. `scored`: the ids whose logits are returned; empty: states are.
// field(i) names prompt i in errors. Throws ApiError: 400 for a prompt that exceeds the context, before any is run, 429, 503, or
// 500 if the device or memory failed; then, and when the client is gone, the remaining prompts are cancelled.
PromptValues run_prompts(Service& service, const HttpRequest& request, const std::vector<std::vector<uint32_t>>& prompts,
                         const std::vector<uint32_t>& scored, const std::function<std::string(size_t)>& field);

// Throws ApiError: 429, 503, or 400 if the prompt cannot be run.
std::shared_ptr<serving::Stream> submit_prompt(serving::Scheduler& scheduler, serving::Request request);

// Returns the file's key ARCHITECTURE.pooling_type, llama.cpp's number: how the states of a text become one vector.
enum class Pooling { none, mean, first, last, rank, unknown, unsaid };
Pooling pooling_of(const ModelFile& file);
const char* pooling_name(Pooling pooling);

} // namespace tq::server
