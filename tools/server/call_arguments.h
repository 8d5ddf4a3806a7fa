// The arguments of a call for the APIs that have them as an object, not as its text.
#pragma once
#include "tools/server/generation.h"

namespace tq::server {

// Nothing if the text is no JSON object.
std::optional<Json> read_arguments(const std::string& text);
// Of an object that was cut off: the members that came whole. A part of a command could be another one.
Json whole_members(const std::string& text);
// The text of a custom tool from the arguments of the function as which it was offered; of arguments that were cut off, perhaps
// within an escape, what there is of it.
std::string custom_input(const std::string& arguments);

} // namespace tq::server
