#include "tools/tq-run/talk/word_wrap.h"
#include "model/text/unicode.h"
#include "tools/tq-run/columns.h"

namespace tq {

constexpr size_t fence_ticks = 3; // ``` begins and ends code

std::string WordWrap::push(std::string_view text, uint32_t columns) {
    columns_ = columns;
    std::string out;
    for (size_t at = 0; at < text.size();) {
        const Utf8Step step = step_utf8(text, at);
        take(step.code_point, text.substr(at, step.length), out);
        at += step.length;
    }
    if (columns_ == 0) out += flush();
    return out;
}

std::string WordWrap::flush() {
    std::string out;
    put_word(out);
    out += gap_;
    column_ += gap_.size();
    gap_.clear();
    return out;
}

void WordWrap::put_word(std::string& out) {
    if (word_.empty()) return;
    const bool fits = in_code_ || columns_ == 0 || column_ == 0 || column_ + gap_.size() + word_columns_ < columns_;
    if (fits) {
        out += gap_;
        column_ += gap_.size();
    } else {
        out += '\n';
        column_ = 0;
    }
    out += word_;
    column_ += word_columns_;
    gap_.clear();
    word_.clear();
    word_columns_ = 0;
}

void WordWrap::note_fence(char32_t c) {
    if (c == U'\n') {
        if (ticks_ >= fence_ticks) in_code_ = !in_code_;
        line_begins_ = true;
        ticks_ = 0;
    } else if (line_begins_ && c == U'`') {
        ++ticks_;
    } else if (c != U' ') {
        line_begins_ = false;
    }
}

void WordWrap::take(char32_t c, std::string_view bytes, std::string& out) {
    note_fence(c);
    if (c == U'\n') {
        put_word(out);
        out += '\n';
        gap_.clear();
        column_ = 0;
    } else if (c == U' ') {
        put_word(out);
        gap_ += ' ';
    } else if (c == U'\t') {
        put_word(out);
        gap_.append(8 - (column_ + gap_.size()) % 8, ' ');
    } else {
        const uint32_t columns = character_columns(c);
        if (columns > 1) put_word(out); // a line may end between wide characters
        word_ += bytes;
        word_columns_ += columns;
        if (columns > 1 || (columns_ > 0 && word_columns_ + 1 >= columns_)) put_word(out);
    }
}

} // namespace tq
