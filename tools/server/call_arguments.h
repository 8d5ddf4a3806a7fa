// The arguments of a call for the APIs that have them as an object, not as its text.
#pragma once
#include "tools/server/generation.h"

namespace tq::server {

// Returns nothing if the text is no JSON object.
std::optional<Json> read_arguments(const std::string& text);
// Returns the complete members of an object that was cut off. Incomplete values are dropped: half a command may be another
// command.
Json whole_members(const std::string& text);
// Returns the text for a custom tool, from the arguments of the function as which the tool was offered. If they were cut off,
// perhaps within an escape, returns what there is of the text.
std::string custom_input(const std::string& arguments);

} // namespace tq::server
