// Breaks lines between words while a text streams. Shown at once is all that cannot move any more; kept back are the last word,
// since it may go on, and the spaces before it, since they vanish if the word begins a new line. A word as wide as the terminal
// is shown in pieces. Wide characters (CJK) may be separated anywhere.
// In answers, lines within ``` fences stay as they are. In messages, the rest of a broken line is indented as the second column
// of a list (two or more spaces make a column, in the first half of the line), and lines that begin with |, {, } or " are data
// and stay whole. "\r" begins a line anew, for the status line.
#include "tools/tq-run/cli/word_wrap.h"
#include "model/text/unicode.h"
#include "tools/tq-run/cli/columns.h"

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

// A word fits if a column is left behind it: some terminals move on when the last one is written. A word at the beginning of a
// line is written whatever its width, as a new line would not help.
void WordWrap::put_word(std::string& out) {
    if (word_.empty()) return;
    const bool fits =
        in_code_ || !is_text_ || columns_ == 0 || column_ <= indent_ || column_ + gap_.size() + word_columns_ < columns_;
    if (fits) {
        out += gap_;
        column_ += gap_.size();
    } else {
        out += '\n' + std::string(indent_, ' ');
        column_ = indent_;
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

// Whether the character belongs to an escape sequence: ESC, and for ESC [ all up to a letter.
bool WordWrap::is_escape(char32_t c) {
    const Escape before = escape_;
    if (before == Escape::none && c == U'\x1b') escape_ = Escape::begun;
    if (before == Escape::begun) escape_ = c == U'[' ? Escape::sequence : Escape::none;
    if (before == Escape::sequence && c >= U'@' && c <= U'~') escape_ = Escape::none;
    return before != Escape::none || escape_ != Escape::none;
}

void WordWrap::begin_line() {
    column_ = indent_ = leading_ = 0;
    is_text_ = true;
    has_column_ = false;
}

// Looks at the beginning of a message's line: what it is, and where a second column begins, in its first half.
// A list such as "--flag    what it does" goes on under "what it does". If the second column begins in the right half of the
// terminal, too little would be left for it, so that the line goes on at its own indentation.
void WordWrap::note_line(char32_t c) {
    const size_t at = column_ + gap_.size() + word_columns_;
    if (c == U' ' && at == leading_) {
        leading_++;
        indent_ = leading_ * 2 < columns_ ? leading_ : 0;
    } else if (at == leading_) {
        is_text_ = c != U'|' && c != U'{' && c != U'}' && c != U'"';
    } else if (c != U' ' && !has_column_ && gap_.size() > 1 && word_.empty() && at * 2 <= columns_) {
        indent_ = at;
        has_column_ = true;
    }
}

// Takes one character. A word, and the gap before it, are kept until the next space or line end shows that the word is complete.
// Escape sequences in messages become part of the word without a width.
void WordWrap::take(char32_t c, std::string_view bytes, std::string& out) {
    if (of_ == Of::messages && is_escape(c)) {
        word_ += bytes;
        return;
    }
    note_fence(c);
    if (of_ == Of::messages && c != U'\n' && c != U'\r' && columns_ > 0) note_line(c);
    if (c == U'\r' && of_ == Of::messages) {
        put_word(out);
        out += gap_ + '\r';
        gap_.clear();
        begin_line();
    } else if (c == U'\n') {
        put_word(out);
        out += '\n';
        gap_.clear();
        begin_line();
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
