// Tool calls as a grammar, by the schemas of the tools' parameters.
#pragma once
#include <nlohmann/json_fwd.hpp>
#include <set>
#include <string>
#include <string_view>

namespace tq::grammar {

enum class ToolCallForm {
    json, // <tool_call>{"name": ..., "arguments": {...}}</tool_call>: Qwen3
    bare, // {"name": ..., "parameters": {...}}: Llama 3.1
    xml,  // <tool_call><function=...><parameter=...>...</parameter></function></tool_call>: Qwen3-Coder
};

// Returns a grammar for one call or, if `parallel`, several. `tools`: OpenAI's list, of {"type": "function", "function": {"name",
// "parameters"}} or of the functions alone; `only`: the name of the tool that must be called, empty for any. The tags are special
// tokens; the bare form has none, and semicolons between calls. With GrammarStart::at_tool_call the model decides whether there
// is a call (tool_choice auto); with the others there is one (required, or a named function). `strict`: names of the tools whose
// schemas must be followed to the letter; null: all. Throws an Error if a tool has no name, there is none, or a schema is not
// supported.
std::string tool_calls_gbnf(const nlohmann::ordered_json& tools, ToolCallForm form, std::string_view only = "",
                            bool parallel = true, const std::set<std::string>* strict = nullptr);

} // namespace tq::grammar
