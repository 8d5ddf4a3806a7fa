// Breaks the lines of a stream of text between words at the terminal's width. Lines of fenced code are unchanged. In messages
// the rest of a broken line is indented as its second column, or as its beginning; rows of tables, JSON and CSV are unchanged,
// and escape sequences take no columns.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace tq {

class WordWrap {
  public:
    enum class Of { answers, messages };
    explicit WordWrap(Of of = Of::answers) : of_(of) {}

    // Returns the part of the text that can be shown: all but the word at its end, which may continue. `columns`: the
    // terminal's current width; 0: no line is broken. `text`: whole UTF-8 characters.
    std::string push(std::string_view text, uint32_t columns);
    std::string flush(); // the word at the end

  private:
    void take(char32_t c, std::string_view bytes, std::string& out);
    void put_word(std::string& out);
    void note_fence(char32_t c);
    void note_line(char32_t c);
    void begin_line();
    bool is_escape(char32_t c);

    Of of_;
    uint32_t columns_ = 0;
    size_t column_ = 0;      // where the cursor is
    std::string word_, gap_; // not shown yet: a word, and the spaces before it
    size_t word_columns_ = 0;
    bool in_code_ = false, line_begins_ = true;
    size_t ticks_ = 0; // backticks at the start of the line

    // Used for messages only.
    size_t indent_ = 0, leading_ = 0; // leading_: spaces that the line begins with
    bool is_text_ = true;             // the line may be broken
    bool has_column_ = false;         // indent_ is that of the second column
    enum class Escape { none, begun, sequence } escape_ = Escape::none;
};

} // namespace tq
