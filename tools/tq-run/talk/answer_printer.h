// Shows an answer token by token: the answer on standard output, the thinking before it, dimmed, on standard error. On a
// terminal lines end between words.
#pragma once
#include "model/text/tokenizer.h"
#include "tools/tq-run/cli/console.h"
#include "tools/tq-run/cli/word_wrap.h"

namespace tq {

class AnswerPrinter {
  public:
    // `thinking`: the prompt has opened the thinking block already.
    AnswerPrinter(const Tokenizer& tokenizer, Console& console, bool thinking);

    void push(uint32_t id);
    void finish(); // ends the line

    const std::string& text() const { return text_; }            // without the thinking
    const std::string& thought() const { return thought_text_; } // the thinking, without its tags
    bool empty() const { return text_.empty() && !thought_; }

  private:
    void show(std::string text);
    void show_thought(std::string_view text, bool ends);

    const Tokenizer& tokenizer_;
    Console& console_;
    const std::optional<uint32_t> think_, end_think_;
    bool thinking_;
    bool thought_ = false;
    Utf8Stream stream_;
    WordWrap wrap_, thought_wrap_;
    std::string text_, thought_text_;
};

} // namespace tq
