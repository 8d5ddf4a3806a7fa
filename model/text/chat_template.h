// Qwen3's chat template, hand-written: messages to the prompt text. The variants differ in how they treat thinking.
#pragma once
#include "model/text/tokenizer.h"
#include <nlohmann/json_fwd.hpp>

namespace tq {

enum class ChatVariant {
    hybrid,   // thinks unless told not to (Qwen3 0.6B to 32B)
    thinking, // always thinks: the prompt ends inside <think> (Thinking-2507)
    instruct, // never thinks: plain ChatML and tools (Instruct-2507, the demo model)
    coder,    // never thinks, tools and their calls are XML (Qwen3-Coder)
};

constexpr bool may_think(ChatVariant variant) { return variant == ChatVariant::hybrid || variant == ChatVariant::thinking; }

// Returns the variant of the file's tokenizer.chat_template, by its features, not its hash: a switch named enable_thinking, a
// <think> in its generation prompt, or <parameter= in its calls. instruct when the file has none.
ChatVariant chat_variant(const ModelFile& file);

struct ChatOptions {
    ChatVariant variant = ChatVariant::hybrid;
    bool add_generation_prompt = true;
    bool enable_thinking = true; // only the hybrid variant has the switch
};

// `messages`: the OpenAI list of {role, content, reasoning_content?, tool_calls?}; content is a string, null, or a list of
// {"type": "text", "text": ...}. `tools`: a list or null. Only the template's own text is markup, so that no message and no
// tool can forge a special token. Throws an Error with the index of a message that has another form.
std::vector<Piece> render_chat(const nlohmann::ordered_json& messages, const nlohmann::ordered_json& tools,
                               const ChatOptions& options);

std::string to_text(std::span<const Piece> pieces);

} // namespace tq
