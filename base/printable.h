// Text that came from outside, made fit to stand in a one-line message.
#pragma once
#include <string>
#include <string_view>

namespace tq {

// Control characters and bytes beyond ASCII become \xNN; past `max_bytes` bytes the rest becomes "...".
std::string printable(std::string_view text, size_t max_bytes = 80);

} // namespace tq
