// A whole answer at once, as a server collects it from its parts.
#pragma once
#include "model/text/tool_calls.h"

namespace tq {

ParsedAnswer parse_answer(std::string_view text, bool in_thinking = false, ToolTypes types = {},
                          UntaggedCalls untagged = UntaggedCalls::none);

} // namespace tq
