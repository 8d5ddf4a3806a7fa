// The chat templates of Qwen3.5, 3.6 and 3.8.
#pragma once
#include "model/text/chat_message.h"
#include "model/text/chat_template.h"

namespace tq {

// Appends the whole prompt. options.variant is one of is_qwen35(); `tools`: a list or null. Throws an Error with the index of a
// message whose call has arguments that are no object, unless options.cut_arguments.
void render_qwen35(PromptPieces& prompt, const std::vector<ChatMessage>& messages, const nlohmann::ordered_json& tools,
                   const ChatOptions& options);

} // namespace tq
