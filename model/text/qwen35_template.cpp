// All texts are stripped. The tools come before the system text, and before both, from Qwen3.8 on, how much to think.
// Tools are JSON, each in a line of its own; calls, and the words around the tools, are those of Qwen3-Coder (coder_template.h).
#include "model/text/qwen35_template.h"
#include "model/text/coder_template.h"
#include "model/text/python_json.h"

namespace tq {
namespace {

using Qwen35Role = ChatMessage::Role;

constexpr std::string_view end_of_qwen35_turn = "<|im_end|>\n";

std::string_view effort_text(const ChatOptions& options) {
    if (options.variant != ChatVariant::qwen38 || !options.thinks()) return {};
    switch (options.effort) {
    case ReasoningEffort::low:
        return "Reasoning effort is set to low. Keep your thinking brief and focused, moving directly to the conclusion without "
               "unnecessary elaboration.";
    case ReasoningEffort::medium: break;
    case ReasoningEffort::xhigh:
        return "Reasoning effort is set to xhigh. Please think carefully through the task, validate key assumptions, consider "
               "plausible alternatives, and prioritize correctness, consistency, and clarity in the final answer.";
    }
    return {};
}

void begin_qwen35_turn(PromptPieces& prompt, std::string_view role) {
    prompt.markup("<|im_start|>");
    prompt.markup(role);
    prompt.markup("\n");
}

// The one system turn has up to three parts with empty lines between them: the effort, the tools, the system text. The turn is
// left out if there is nothing for it. Qwen3.8 alone leaves it out for a system message that is empty, too.
void qwen35_system(PromptPieces& prompt, const ChatMessage& first, const nlohmann::ordered_json& tools,
                   const ChatOptions& options) {
    const std::string_view effort = effort_text(options);
    const bool has_system = first.role == Qwen35Role::system, has_tools = tools.is_array() && !tools.empty();
    const std::string_view system = has_system ? python_strip(first.content) : std::string_view();
    const bool shows_empty = has_system && options.variant != ChatVariant::qwen38;
    if (effort.empty() && !has_tools && system.empty() && !shows_empty) return;
    begin_qwen35_turn(prompt, "system");
    prompt.markup(effort);
    std::string_view gap = effort.empty() ? "" : "\n\n";
    if (has_tools) {
        prompt.markup(gap);
        prompt.markup(coder_intro);
        for (const auto& tool : tools) {
            prompt.markup("\n");
            prompt.content(python_json(tool));
        }
        prompt.markup(coder_outro);
        gap = "\n\n";
    }
    if (!system.empty()) {
        prompt.markup(gap);
        prompt.content(system);
    }
    prompt.markup(end_of_qwen35_turn);
}

// `keeps_thinking`: of this message.
void qwen35_answer(PromptPieces& prompt, const ChatMessage& message, size_t index, bool keeps_thinking,
                   const ChatOptions& options) {
    const std::string_view content = python_strip(message.content);
    const std::optional<std::string> none = "", &given = message.reasoning_content;
    const bool divides = options.variant != ChatVariant::qwen38; // which takes tags in the content for text
    const DividedAnswer answer = divide_answer(given || divides ? given : none, content);
    begin_qwen35_turn(prompt, "assistant");
    if (keeps_thinking) {
        prompt.markup("<think>\n");
        prompt.content(python_strip(answer.reasoning));
        prompt.markup("\n</think>\n\n");
    }
    prompt.content(answer.content);
    std::string_view gap = python_strip(answer.content).empty() ? "" : "\n\n";
    for (const ChatMessage::ToolCall& call : message.tool_calls) {
        prompt.markup(gap);
        prompt.markup("<tool_call>\n");
        prompt.content(coder_call(call, index, options));
        prompt.markup("</tool_call>");
        gap = "\n";
    }
    prompt.markup(end_of_qwen35_turn);
}

// Adjacent results are one turn of the user, which begins only after another message.
void qwen35_result(PromptPieces& prompt, const ChatMessage& message, bool begins_turn, bool ends_turn) {
    if (begins_turn) prompt.markup("<|im_start|>user");
    prompt.markup("\n<tool_response>\n");
    prompt.content(python_strip(message.content));
    prompt.markup("\n</tool_response>");
    if (ends_turn) prompt.markup(end_of_qwen35_turn);
}

} // namespace

// The thinking of earlier answers is left out up to the last question of the user (last_query), unless the request keeps it:
// models were trained so. So an answer's text changes when a new question comes, and a prefix cache finds the conversation only
// up to the last question before.
void render_qwen35(PromptPieces& prompt, const std::vector<ChatMessage>& messages, const nlohmann::ordered_json& tools,
                   const ChatOptions& options) {
    qwen35_system(prompt, messages[0], tools, options);
    const size_t query = last_query(messages, true);
    for (size_t i = 0; i < messages.size(); ++i) {
        const ChatMessage& message = messages[i];
        const auto is_result = [&](size_t at) { return messages[at].role == Qwen35Role::tool; };
        switch (message.role) {
        case Qwen35Role::system:
            if (i == 0) break;
            [[fallthrough]];
        case Qwen35Role::user:
            begin_qwen35_turn(prompt, "user");
            prompt.content(python_strip(message.content));
            prompt.markup(end_of_qwen35_turn);
            break;
        case Qwen35Role::assistant: qwen35_answer(prompt, message, i, i > query || options.keeps_thinking(), options); break;
        case Qwen35Role::tool:
            qwen35_result(prompt, message, i > 0 && !is_result(i - 1), i + 1 == messages.size() || !is_result(i + 1));
        }
    }
    if (!options.add_generation_prompt) return;
    begin_qwen35_turn(prompt, "assistant");
    prompt.markup(options.opens_thinking() ? "<think>\n" : "<think>\n\n</think>\n\n");
}

} // namespace tq
