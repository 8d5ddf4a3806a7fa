// The chat templates of Qwen3 and Llama 3, hand-written: messages to the prompt text.
#pragma once
#include "model/text/tokenizer.h"
#include <nlohmann/json_fwd.hpp>

namespace tq {

enum class ChatVariant {
    hybrid,   // thinks unless told not to (Qwen3 0.6B to 32B)
    thinking, // always thinks: the prompt ends inside <think> (Thinking-2507)
    instruct, // never thinks: plain ChatML and tools (Instruct-2507, the demo model)
    coder,    // never thinks, tools and their calls are XML (Qwen3-Coder)
    llama3,   // Llama 3: <|start_header_id|>, no tools
    llama31,  // Llama 3.1 and 3.3: with tools, the date of their release in the system turn
    llama32,  // Llama 3.2: the same with the date of today
};

constexpr bool is_llama(ChatVariant variant) { return variant >= ChatVariant::llama3; }
constexpr bool may_think(ChatVariant variant) { return variant == ChatVariant::hybrid || variant == ChatVariant::thinking; }

// Returns the variant of the file's tokenizer.chat_template, by its features, not its hash: a switch named enable_thinking, a
// <think> in its generation prompt, <parameter= in its calls, or <|start_header_id|>. instruct when the file has none.
ChatVariant chat_variant(const ModelFile& file);

// Returns the system prompt that the file's template has for conversations without one, as Qwen2.5's and SmolLM2's; empty: none.
std::string default_system_prompt(const ModelFile& file);

struct ChatOptions {
    ChatVariant variant = ChatVariant::hybrid;
    bool add_generation_prompt = true;
    bool enable_thinking = true; // only the hybrid variant has the switch
    std::string date = {};       // of llama32, "26 Jul 2024"; empty: today
    bool cut_arguments = false;  // arguments of a call that are no JSON object are shown as they are; else an error of coder's
};

// `messages`: the OpenAI list of {role, content, reasoning_content?, tool_calls?}; content is a string, null, or a list of
// {"type": "text", "text": ...}. `tools`: a list or null. Only the template's own text is markup, so that no message and no
// tool can forge a special token. Throws an Error with the index of a message that has another form.
std::vector<Piece> render_chat(const nlohmann::ordered_json& messages, const nlohmann::ordered_json& tools,
                               const ChatOptions& options);

std::string to_text(std::span<const Piece> pieces);

} // namespace tq
