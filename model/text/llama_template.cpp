// The chat templates of Llama 3, 3.1 and 3.2, in C++. Llama 3 has plain turns. From 3.1 on there is always a system turn, with
// two dates: the one of today is constant in 3.1 and the real one in 3.2. A prefix cache of a 3.2 model is therefore of no use on
// another day than that on which it was made. Tests set ChatOptions::date.
// Llama 3's own template has no tools: they are written as 3.1 writes them, because clients that offer tools offer them always.
// Tools are in the first message of the user, not in the system turn. A model calls with bare JSON, whose arguments are called
// "parameters"; results have the role "ipython". These templates strip white space around each content, as Python's strip() does.
// The official template allows one call for each message. Several are written here with "; " between them, as vLLM's parser of
// this form reads them.
#include "model/text/llama_template.h"
#include "base/clock.h"
#include "base/error.h"
#include "model/text/python_json.h"

namespace tq {
namespace {

using LlamaRole = ChatMessage::Role;

constexpr std::string_view begin_of_text = "<|begin_of_text|>", end_of_turn = "<|eot_id|>";
constexpr std::string_view tools_request = "Given the following functions, please respond with a JSON for a function call with "
                                           "its proper arguments that best answers the "
                                           "given prompt.\n\nRespond in the format {\"name\": function name, \"parameters\": "
                                           "dictionary of argument name and its value}.Do "
                                           "not use variables.\n\n";

void begin_turn(PromptPieces& prompt, std::string_view role) {
    prompt.markup("<|start_header_id|>");
    prompt.markup(role);
    prompt.markup("<|end_header_id|>\n\n");
}

void llama_turn(PromptPieces& prompt, std::string_view role, std::string_view content) {
    begin_turn(prompt, role);
    prompt.content(content);
    prompt.markup(end_of_turn);
}

const char* role_name(LlamaRole role) {
    switch (role) {
    case LlamaRole::system: return "system";
    case LlamaRole::user: return "user";
    case LlamaRole::assistant: return "assistant";
    case LlamaRole::tool: break;
    }
    return "tool";
}

std::string parameters_text(const ChatMessage::ToolCall& call, size_t index, bool cut_arguments) {
    try {
        return python_json(call.object(index));
    } catch (const Error&) {
        if (!cut_arguments) throw;
    }
    return call.text();
}

void calls_turn(PromptPieces& prompt, const ChatMessage& message, size_t index, bool cut_arguments) {
    begin_turn(prompt, "assistant");
    const char* separator = "";
    for (const ChatMessage::ToolCall& call : message.tool_calls) {
        prompt.markup(separator);
        prompt.markup("{\"name\": \"");
        prompt.content(call.name);
        prompt.markup("\", \"parameters\": ");
        prompt.content(parameters_text(call, index, cut_arguments));
        prompt.markup("}");
        separator = "; ";
    }
    prompt.markup(end_of_turn);
}

// The first message after the system's, with the tools.
void tools_turn(PromptPieces& prompt, const ChatMessage& message, const nlohmann::ordered_json& tools) {
    begin_turn(prompt, "user");
    prompt.markup(tools_request);
    for (const auto& tool : tools) {
        prompt.content(python_json(tool, 4));
        prompt.markup("\n\n");
    }
    prompt.content(python_strip(message.content));
    prompt.markup(end_of_turn);
}

// Llama 3.1's and later ones always have it.
void system_turn(PromptPieces& prompt, std::string_view content, bool has_tools, const ChatOptions& options) {
    const bool of_today = options.variant == ChatVariant::llama32;
    begin_turn(prompt, "system");
    if (has_tools) prompt.markup("Environment: ipython\n");
    prompt.markup(fmt::format("Cutting Knowledge Date: December 2023\nToday Date: {}\n\n", !of_today ? "26 Jul 2024"
                                                                                           : options.date.empty()
                                                                                               ? local_time_text("%d %b %Y")
                                                                                               : options.date));
    prompt.content(python_strip(content));
    prompt.markup(end_of_turn);
}

} // namespace

void render_llama(PromptPieces& prompt, const std::vector<ChatMessage>& messages, const nlohmann::ordered_json& tools,
                  const ChatOptions& options) {
    const bool has_tools = tools.is_array() && !tools.empty(), is_plain = options.variant == ChatVariant::llama3;
    const bool has_system = messages[0].role == LlamaRole::system;
    prompt.markup(begin_of_text);
    size_t i = has_system ? 1 : 0;
    if (!is_plain)
        system_turn(prompt, has_system ? messages[0].content : "", has_tools, options);
    else if (has_system)
        llama_turn(prompt, "system", python_strip(messages[0].content));
    if (has_tools && i == messages.size()) fail("tools need a message of the user, in which the chat template of Llama has them");
    if (has_tools) tools_turn(prompt, messages[i++], tools);
    for (; i < messages.size(); ++i) {
        const ChatMessage& message = messages[i];
        if (!is_plain && message.role == LlamaRole::tool)
            llama_turn(prompt, "ipython", python_json(message.content));
        else if (!message.tool_calls.empty())
            calls_turn(prompt, message, i, options.cut_arguments);
        else
            llama_turn(prompt, role_name(message.role), python_strip(message.content));
    }
    if (options.add_generation_prompt) begin_turn(prompt, "assistant");
}

} // namespace tq
