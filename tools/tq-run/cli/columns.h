// The columns that text takes on a terminal: wide characters (CJK, emoji) take two, combining ones none.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace tq {

uint32_t character_columns(char32_t code_point); // 0 for control characters

// All take UTF-8; a byte that is no part of a character counts one column.
size_t display_columns(std::string_view text);

// Returns at most `max` columns of the text, in whole characters; "..." replaces the part left out.
std::string cut_end(std::string_view text, size_t max);
std::string cut_middle(std::string_view text, size_t max);

} // namespace tq
