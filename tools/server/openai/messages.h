// OpenAI's messages and tools as the template takes them.
#pragma once
#include "tools/server/generation.h"

namespace tq::server {

// "messages" as ChatTask has them. Throws ApiError (400) that names the message.
Json read_messages(const Json& body, const Limits& limits);

// A request of /v1/chat/completions. Likewise.
ChatTask read_chat_task(const Service& service, const Json& body);

// "logprobs" and "top_logprobs". Likewise.
void read_logprobs(Sampling& sampling, const Json& body, const Limits& limits);

} // namespace tq::server
