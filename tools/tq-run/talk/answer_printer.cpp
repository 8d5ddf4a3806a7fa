// Shows an answer as its tokens come. Thinking goes to standard error, dimmed, the answer to standard output, so that a pipe gets
// the answer alone. The tokens <think> and </think> switch between the two. A pipe gets the bytes as they are; a terminal gets
// them without control characters, wrapped at its width.
#include "tools/tq-run/talk/answer_printer.h"
#include "base/terminal.h"

namespace tq {

AnswerPrinter::AnswerPrinter(const Tokenizer& tokenizer, Console& console, bool thinking)
    : tokenizer_(tokenizer), console_(console), think_(tokenizer.special("<think>")), end_think_(tokenizer.special("</think>")),
      thinking_(thinking) {}

void AnswerPrinter::push(uint32_t id) {
    console_.clear_status();
    const bool opens = id == think_ && !thinking_, closes = id == end_think_ && thinking_;
    if (opens || closes) {
        show(stream_.flush());
        thinking_ = opens;
        thought_ = true;
        show_thought(opens ? "<think>" : "</think>\n", !opens);
    } else if (!tokenizer_.is_control(id)) {
        show(stream_.push(tokenizer_.bytes(id)));
    }
}

void AnswerPrinter::show(std::string text) {
    if (thinking_) {
        thought_ |= !text.empty();
        thought_text_ += text;
        return show_thought(text, false);
    }
    if (thought_ && text_.empty()) text.erase(0, text.find_first_not_of('\n')); // the template's gap after the thinking
    text_ += text;
    if (!console_.output_is_terminal()) return write_output(text);
    write_output(wrap_.push(harmless(text), console_.wraps() ? terminal_columns(Stream::output) : 0));
}

void AnswerPrinter::show_thought(std::string_view text, bool ends) {
    const uint32_t columns = console_.edits() ? terminal_columns(Stream::error) : 0;
    std::string shown = thought_wrap_.push(harmless(text), columns);
    if (ends) shown += thought_wrap_.flush();
    write_error(console_.dim(shown));
}

void AnswerPrinter::finish() {
    console_.clear_status();
    show(stream_.flush());
    if (thinking_) show_thought("\n", true);
    write_output(wrap_.flush() + "\n");
}

} // namespace tq
