// The parts of Qwen3-Coder's chat template that differ from Qwen3's: tools as XML, calls with a tag for each parameter. Qwen3.5
// and later have these calls, too.
#pragma once
#include "model/text/chat_message.h"
#include "model/text/chat_template.h"

namespace tq {

// The template's own text: the system message if there are tools but none is given, and the texts before and after the tools.
// Qwen3.5 and later have Qwen3-Coder's words around tools in JSON, Qwen3-Coder-Next has its own.
extern const std::string_view coder_system, coder_intro, coder_outro, coder_next_intro, coder_next_outro;

// Returns one tool of the list as the template writes it.
std::string coder_tool(const nlohmann::ordered_json& tool);

// Returns a call as the template writes it between <tool_call> and </tool_call>. Values that are neither texts nor structured are
// written as in Python, from Qwen3.6 on as JSON. Throws an Error with the index of the message if the arguments are no object and
// options.cut_arguments does not allow that; an empty text means no arguments for Qwen3.5 and later.
std::string coder_call(const ChatMessage::ToolCall& call, size_t message, const ChatOptions& options);

} // namespace tq
