// Parts of the requests of the agents' APIs (responses, messages): items of a conversation become turns, and tools get the form
// that the chat template takes. Each read_ function throws an ApiError (400) that names the field.
#pragma once
#include "tools/server/json_fields.h"

namespace tq::server {

// "input[1]" from "input" and 1.
std::string entry_path(std::string_view path, size_t index);

// The entry of a list, which must be an object.
const Json& object_entry(const Json& list, size_t index, std::string_view path);
std::string required_text(const Json& object, const char* name, std::string_view path);
std::string required_name(const Json& object, std::string_view path); // "name", not empty
const Json& required_object(const Json& object, const char* name, std::string_view path);

void append_text(std::string& text, std::string_view more, std::string_view between);

// A text from JSON text, a string or null; what is no valid UTF-8 becomes U+FFFD.
std::string dump_text(const Json& json);

// {"type": "function", "function": {...}}; null if there is no description, or no parameters.
Json function_tool(const std::string& name, const std::optional<std::string>& description, const Json* parameters);

// Appends it to the task's, with `strict` of the tool that a request gives.
void add_function(ChatTask& task, const Json& given, Json function, std::string_view path);

// "tools" of OpenAI's APIs and Ollama's, {"type": "function", "function": {...}} or with the function's fields beside the type,
// and "tool_choice" and "parallel_tool_calls". Tools of other types, which run on other servers, are not offered to the model.
void read_tools(ChatTask& task, const Json& body, const Limits& limits);

// "tool_choice" and "parallel_tool_calls" of all APIs: auto, none, required (Anthropic's any), a tool by its name, or
// allowed_tools, which leaves out the others. Throws if there is no such tool.
void read_tool_choice(ChatTask& task, const Json& body, const Limits& limits);

// {"type": "text" | "json_object" | "json_schema", "schema", "strict"}; null: text. A chat's should have schema and strict within
// "json_schema", and may have them beside the type, as llama.cpp's do.
Format read_format(const Json* format, const std::string& path, bool of_chat = false);

// "none" and "minimal": no thinking; "low", "medium", "high", "xhigh", "max": how much; "auto" and "default": as if there were
// none. Returns false for other texts.
bool read_effort(ChatTask& task, const std::string& effort);

// "reasoning" of the responses API and of OpenRouter's chats: {"effort", "enabled", "max_tokens"}.
void read_reasoning(ChatTask& task, const Json& body);
// "thinking" of Anthropic's API and of other servers' chats: {"type": "enabled" | "adaptive" | "disabled", "budget_tokens"}.
void read_thinking(ChatTask& task, const Json& body);

// The fields of read_sampling(); what the task has already, max_tokens and stop, is kept. There is one choice.
void read_task_sampling(ChatTask& task, const Service& service, const Json& body);

} // namespace tq::server
