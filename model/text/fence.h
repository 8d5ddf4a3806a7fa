// Fences of Markdown, which models put around JSON: "```json", the JSON, "```".
#pragma once
#include <string_view>

namespace tq {

// A text that may go on is nothing but the beginning of a fence's first line.
bool begins_fence(std::string_view text);

// What is within the fence, whose end may be missing; all of a text that has none.
std::string_view without_fence(std::string_view text);

} // namespace tq
