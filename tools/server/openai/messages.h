// OpenAI's messages and tools as the template takes them.
#pragma once
#include "tools/server/generation.h"

namespace tq::server {

// "messages" as ChatTask has them. Throws ApiError (400) that names the message.
Json read_messages(const Json& body, const Limits& limits);

// A request of /v1/chat/completions. Throws ApiError (400) that names the field.
ChatTask read_chat_task(const Service& service, const Json& body);

// Reads "logprobs" and "top_logprobs". Throws ApiError (400).
void read_logprobs(Sampling& sampling, const Json& body, const Limits& limits);

} // namespace tq::server
