// Lists and numbers in texts.
#pragma once
#include <charconv>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace tq {

// Divides a text at each character that is one of `separators`: "a,,b" into {"a", "", "b"}, and an empty text into {""}.
std::vector<std::string> split(std::string_view text, std::string_view separators);

// Sets `value` to the number that the whole of `text` is. Returns false, and leaves `value` unchanged, if `text` is no number or
// T cannot hold it.
template <class T> bool parse_number(std::string_view text, T& value, int base = 10) {
    T number{};
    const char* const end = text.data() + text.size();
    std::from_chars_result result{};
    if constexpr (std::is_integral_v<T>)
        result = std::from_chars(text.data(), end, number, base);
    else
        result = std::from_chars(text.data(), end, number);
    if (result.ec != std::errc() || result.ptr != end) return false;
    value = number;
    return true;
}

} // namespace tq
