// Breaks the lines of a stream of text between words at the terminal's width. Lines of fenced code are unchanged.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace tq {

class WordWrap {
  public:
    // Returns the part of the text that can be shown: all but the word at its end, which may continue. `columns`: the
    // terminal's current width; 0: no line is broken. `text`: whole UTF-8 characters.
    std::string push(std::string_view text, uint32_t columns);
    std::string flush(); // the word at the end

  private:
    void take(char32_t c, std::string_view bytes, std::string& out);
    void put_word(std::string& out);
    void note_fence(char32_t c);

    uint32_t columns_ = 0;
    size_t column_ = 0;      // where the cursor is
    std::string word_, gap_; // not shown yet: a word, and the spaces before it
    size_t word_columns_ = 0;
    bool in_code_ = false, line_begins_ = true;
    size_t ticks_ = 0; // backticks at the start of the line
};

} // namespace tq
