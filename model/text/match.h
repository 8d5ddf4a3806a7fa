// Words and strings of JSON in a text that is still coming.
#pragma once
#include <algorithm>
#include <cstddef>
#include <initializer_list>
#include <string_view>

namespace tq {

inline constexpr size_t max_tag_name_bytes = 256;
inline constexpr std::string_view call_tag = "<tool_call>", end_call_tag = "</tool_call>";
inline constexpr std::string_view function_tag = "<function=", end_function_tag = "</function>"; // with the name, and >
inline constexpr std::string_view tools_tag = "<tools>", end_tools_tag = "</tools>"; // which Qwen2.5-Coder writes instead

inline bool is_json_space(char c) { return c == ' ' || c == '\t' || c == '\r' || c == '\n'; }

// Returns the first position from `at` on that is no white space.
inline size_t spaces(std::string_view text, size_t at = 0) {
    while (at < text.size() && is_json_space(text[at])) ++at;
    return at;
}

// A pattern at the beginning of a text that may go on: its end, or whether more text can make it match.
struct Match {
    enum { no, more, yes } found;
    size_t end = 0;
};

inline Match match_word(std::string_view text, size_t at, std::string_view word) {
    const std::string_view here = text.substr(std::min(at, text.size()), word.size());
    if (here == word) return {Match::yes, at + word.size()};
    return {word.starts_with(here) && at + here.size() == text.size() ? Match::more : Match::no};
}

// Words with any white space before each.
inline Match match_words(std::string_view text, size_t at, std::initializer_list<std::string_view> words) {
    for (const std::string_view word : words) {
        const Match match = match_word(text, spaces(text, at), word);
        if (match.found != Match::yes) return match;
        at = match.end;
    }
    return {Match::yes, at};
}

// A tag that begins calls, with white space before it; <tools> does only before an object.
inline Match match_open_tag(std::string_view text, size_t at) {
    const Match call = match_words(text, at, {call_tag}), object = match_words(text, at, {tools_tag, "{"});
    if (call.found == Match::yes || object.found == Match::no) return call;
    return object.found == Match::yes ? match_words(text, at, {tools_tag}) : object;
}

// A tag that ends calls.
inline Match match_end_tag(std::string_view text, size_t at) {
    const Match call = match_words(text, at, {end_call_tag}), tools = match_words(text, at, {end_tools_tag});
    return call.found == Match::yes || tools.found == Match::no ? call : tools;
}

// The end of a JSON string that begins at `at`.
inline Match match_string(std::string_view text, size_t at) {
    if (at >= text.size()) return {Match::more};
    if (text[at] != '"') return {Match::no};
    for (size_t i = at + 1; i < text.size() && i < at + max_tag_name_bytes; ++i) {
        if (text[i] == '\\')
            ++i;
        else if (text[i] == '"')
            return {Match::yes, i + 1};
    }
    return {text.size() < at + max_tag_name_bytes ? Match::more : Match::no};
}

} // namespace tq
