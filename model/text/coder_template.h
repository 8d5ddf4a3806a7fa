// The parts of Qwen3-Coder's chat template that differ from Qwen3's: tools as XML, calls with a tag for each parameter.
#pragma once
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

namespace tq {

// The template's own text: the system message where there are tools but none is given, and what is before and after the tools.
extern const std::string_view coder_system, coder_intro, coder_outro;

// One tool of the list.
std::string coder_tool(const nlohmann::ordered_json& tool);

// A call between <tool_call> and </tool_call>. `arguments`: an object.
std::string coder_call(std::string_view name, const nlohmann::ordered_json& arguments);

} // namespace tq
