// The chat templates of Qwen3 to Qwen3.8 and Llama 3, hand-written: messages to the prompt text.
#pragma once
#include "model/text/tokenizer.h"
#include <array>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace tq {

enum class ChatVariant {
    hybrid,       // thinks unless told not to (Qwen3 0.6B to 32B)
    thinking,     // always thinks: the prompt ends inside <think> (Thinking-2507, Qwen3-Next's among them)
    instruct,     // never thinks: plain ChatML and tools (Instruct-2507, Qwen3-Next's among them, the demo model)
    coder,        // never thinks, tools and their calls are XML (Qwen3-Coder)
    coder_next,   // the same with other words before and after the tools (Qwen3-Coder-Next)
    qwen35,       // thinks unless told not to: the prompt ends inside <think>; tools are JSON, calls XML (Qwen3.5)
    qwen35_small, // the same, but thinks only when told to (Qwen3.5 0.8B and 2B)
    qwen36,       // qwen35 with a switch that keeps the thinking of earlier answers (Qwen3.6)
    qwen38,       // keeps it unless told not to, and is told how much to think (Qwen3.8)
    llama3,       // Llama 3: <|start_header_id|>
    llama31,      // Llama 3.1 and 3.3: with tools, the date of their release in the system turn
    llama32,      // Llama 3.2: the same with the date of today
};

constexpr bool is_llama(ChatVariant variant) { return variant >= ChatVariant::llama3; }
constexpr bool is_qwen35(ChatVariant variant) { return variant >= ChatVariant::qwen35 && variant <= ChatVariant::qwen38; }
constexpr bool has_xml_calls(ChatVariant variant) { return variant >= ChatVariant::coder && variant <= ChatVariant::qwen38; }
constexpr bool may_think(ChatVariant variant) {
    return variant == ChatVariant::hybrid || variant == ChatVariant::thinking || is_qwen35(variant);
}
constexpr bool thinks_by_default(ChatVariant variant) { return may_think(variant) && variant != ChatVariant::qwen35_small; }

// The names by which command lines know them.
inline constexpr std::array<std::pair<std::string_view, ChatVariant>, 12> chat_variant_names{
    {{"hybrid", ChatVariant::hybrid},
     {"thinking", ChatVariant::thinking},
     {"instruct", ChatVariant::instruct},
     {"coder", ChatVariant::coder},
     {"coder-next", ChatVariant::coder_next},
     {"qwen3.5", ChatVariant::qwen35},
     {"qwen3.5-small", ChatVariant::qwen35_small},
     {"qwen3.6", ChatVariant::qwen36},
     {"qwen3.8", ChatVariant::qwen38},
     {"llama3", ChatVariant::llama3},
     {"llama31", ChatVariant::llama31},
     {"llama32", ChatVariant::llama32}}};
std::optional<ChatVariant> find_chat_variant(std::string_view name);

// Returns the variant of the file's tokenizer.chat_template, by its features, not its hash: switches named enable_thinking and
// preserve_thinking, a <think> in its generation prompt, <parameter= in its calls, or <|start_header_id|>. instruct when the file
// has none.
ChatVariant chat_variant(const ModelFile& file);

// Returns the system prompt that the file's template has for conversations without one, as Qwen2.5's and SmolLM2's; empty: none.
std::string default_system_prompt(const ModelFile& file);
// Returns a sentence on a system prompt that the template may have and default_system_prompt() does not find.
std::optional<std::string> system_prompt_note(const ModelFile& file);

// Effort that qwen38 is told to think with: xhigh and low by a sentence in the system turn.
enum class ReasoningEffort { low, medium, xhigh };
// By the names low, medium and xhigh, and by high and max, which are xhigh.
std::optional<ReasoningEffort> find_effort(std::string_view name);

struct ChatOptions {
    ChatVariant variant = ChatVariant::hybrid;
    bool add_generation_prompt = true;
    std::optional<bool> enable_thinking = {}; // hybrid, qwen35 and later have the switch; empty: as the template does
    std::string date = {};                    // of llama32, "26 Jul 2024"; empty: today
    bool cut_arguments = false; // arguments of a call that are no JSON object are shown as they are; else an error of XML calls
    std::optional<bool> preserve_thinking = {}; // of earlier answers, by qwen36 and qwen38; empty: as the template does
    ReasoningEffort effort = ReasoningEffort::xhigh;

    bool thinks() const { // the model will think, or may
        const bool has_switch = may_think(variant) && variant != ChatVariant::thinking;
        return has_switch ? enable_thinking.value_or(thinks_by_default(variant)) : variant == ChatVariant::thinking;
    }
    bool opens_thinking() const { // the generation prompt ends inside <think>
        return variant == ChatVariant::thinking || (is_qwen35(variant) && thinks());
    }
    bool keeps_thinking() const { // of all earlier answers, not only of those after the last question
        const bool keeps = variant == ChatVariant::qwen38;
        return keeps || variant == ChatVariant::qwen36 ? preserve_thinking.value_or(keeps) : false;
    }
};

// `messages`: the OpenAI list of {role, content, reasoning_content?, tool_calls?}; content is a string, null, or a list of
// {"type": "text", "text": ...}. `tools`: a list or null. Only the template's own text is markup, so that no message and no
// tool can forge a special token. Chats that qwen35 and later would refuse are rendered if that is possible: a system message
// that is not the first is a user's turn, arguments may be the text of an object, and nobody need ask anything. Throws an Error
// with the index of a message that has another form.
std::vector<Piece> render_chat(const nlohmann::ordered_json& messages, const nlohmann::ordered_json& tools,
                               const ChatOptions& options);

// Returns the positions in a chat's prompt at which messages begin that are likely to differ in another prompt: the one after the
// first, the last but one, and the last, which is the answer's beginning. In order, without the prompt's own beginning; none if
// it is no chat.
std::vector<uint32_t> message_marks(const Tokenizer& tokenizer, std::span<const uint32_t> prompt);

std::string to_text(std::span<const Piece> pieces);

} // namespace tq
