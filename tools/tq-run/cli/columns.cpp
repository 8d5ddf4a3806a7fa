// Widths of text in columns of a terminal: wide characters (CJK) take two, combining ones none, and what is no UTF-8 one. Texts
// are cut between characters only.
#include "tools/tq-run/cli/columns.h"
#include "model/text/unicode.h"
#include <algorithm>
#include <utf8proc.h>

namespace tq {
namespace {

constexpr std::string_view dots = "...";

struct Step {
    size_t bytes;
    uint32_t columns;
};

Step step(std::string_view text, size_t at) {
    const Utf8Step s = step_utf8(text, at);
    return {s.length, s.kind == Utf8Step::Kind::character ? character_columns(s.code_point) : 1};
}

// The number of bytes of the text's beginning that take at most `max` columns.
size_t bytes_within(std::string_view text, size_t max) {
    size_t at = 0, columns = 0;
    while (at < text.size()) {
        const Step s = step(text, at);
        if (columns + s.columns > max) break;
        columns += s.columns;
        at += s.bytes;
    }
    return at;
}

// The end of the text that takes at most `max` columns.
std::string_view end_within(std::string_view text, size_t max) {
    size_t at = 0, columns = display_columns(text);
    while (columns > max) {
        const Step s = step(text, at);
        columns -= s.columns;
        at += s.bytes;
    }
    return text.substr(at);
}

} // namespace

uint32_t character_columns(char32_t code_point) {
    return uint32_t(std::max(0, ::utf8proc_charwidth(utf8proc_int32_t(code_point))));
}

size_t display_columns(std::string_view text) {
    size_t columns = 0;
    for (size_t at = 0; at < text.size();) {
        const Step s = step(text, at);
        columns += s.columns;
        at += s.bytes;
    }
    return columns;
}

std::string cut_end(std::string_view text, size_t max) {
    if (display_columns(text) <= max) return std::string(text);
    if (max < dots.size()) return std::string(text.substr(0, bytes_within(text, max)));
    return std::string(text.substr(0, bytes_within(text, max - dots.size()))).append(dots);
}

std::string cut_middle(std::string_view text, size_t max) {
    if (display_columns(text) <= max) return std::string(text);
    if (max < 2 + dots.size()) return cut_end(text, max);
    const size_t first = (max - dots.size()) / 2;
    return std::string(text.substr(0, bytes_within(text, first)))
        .append(dots)
        .append(end_within(text, max - dots.size() - first));
}

} // namespace tq
