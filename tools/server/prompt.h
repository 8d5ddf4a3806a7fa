// The prompt of a chat: what the template makes of its messages, and how the answer to it begins.
#pragma once
#include "tools/server/constraints.h"

namespace tq::server {

struct ChatPrompt {
    std::vector<uint32_t> ids;
    Thinking thinking;
    bool continues = false; // the last message, of the assistant
};

// Throws ApiError (400) where the messages or tools are not what the template takes. A last message of the assistant is left
// open, to be continued; its thinking is over.
ChatPrompt chat_prompt(const Service& service, const ChatTask& task);

// The ids that the next prompt will begin with where `answer` is sent back: without the thinking, which most clients do not send.
std::vector<uint32_t> answered_prompt(const Service& service, const ChatTask& task, const ParsedAnswer& answer);

// Throws ApiError (400, context_length_exceeded) with both numbers.
void require_fits(const Service& service, size_t prompt_tokens, const char* param);

} // namespace tq::server
