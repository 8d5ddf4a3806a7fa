// Fences of Markdown, which models put around JSON: "```json", the JSON, "```".
#pragma once
#include "model/text/match.h"

namespace tq {

inline constexpr std::string_view fence_mark = "```";

// The beginning of a fence, with white space before it and the word behind it.
Match match_fence(std::string_view text);

} // namespace tq
