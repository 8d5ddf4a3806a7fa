// The answers of the scripted model: what its user asks for.
#pragma once
#include "tests/support/scripted_forward.h"
#include <string>
#include <string_view>

namespace tq::test {

// Returns the answer to a prompt, as text. The last message of the user that is no tool's result decides:
//   please call NAME {...}    calls the tool, if there is one, each time it occurs; after its result "The tool said: ..."
//   please count to N         "1 2 3 ..."
//   please say: TEXT          TEXT
// and anything else is answered with "Hello!". If the prompt lets the model think, a thought comes first.
std::string scripted_answer(std::string_view prompt, ChatVariant variant);

// The same as a script. Without a prompt it says a sentence by heart.
Script client_script(const Model& model);

} // namespace tq::test
