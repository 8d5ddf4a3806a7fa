// Makes text from outside fit for a one-line message, or for a comparison.
#pragma once
#include <string>
#include <string_view>

namespace tq {

// Control characters and bytes beyond ASCII become \xNN; past `max_bytes` bytes the rest becomes "...".
std::string printable(std::string_view text, size_t max_bytes = 80);

// A to Z become a to z; all other bytes stay.
std::string lowercase(std::string_view text);

} // namespace tq
