// The chat templates of Llama 3 to 3.3.
#pragma once
#include "model/text/chat_message.h"
#include "model/text/chat_template.h"

namespace tq {

// Appends the whole prompt. options.variant is one of Llama's; `tools`: a list or null. Several calls of one message, which the
// template of Llama 3.1 does not have, are separated by semicolons, as the model writes them. Throws an Error if the template
// has no place for the tools.
void render_llama(PromptPieces& prompt, const std::vector<ChatMessage>& messages, const nlohmann::ordered_json& tools,
                  const ChatOptions& options);

} // namespace tq
