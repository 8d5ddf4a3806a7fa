#include "model/text/fence.h"

namespace tq {

Match match_fence(std::string_view text) {
    Match mark = match_words(text, 0, {fence_mark});
    if (mark.found != Match::yes) return mark;
    const auto is_of_word = [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || c == '-'; };
    while (mark.end < text.size() && is_of_word(text[mark.end])) ++mark.end;
    return mark.end < text.size() ? mark : Match{Match::more};
}

} // namespace tq
