#include "tools/tq-run/answer.h"

namespace tq {

Answer::Answer(const Tokenizer& tokenizer, Console& console, bool thinking)
    : tokenizer_(tokenizer), console_(console), think_(tokenizer.special("<think>")), end_think_(tokenizer.special("</think>")),
      thinking_(thinking) {}

void Answer::push(uint32_t id) {
    console_.clear_status();
    const bool opens = id == think_ && !thinking_, closes = id == end_think_ && thinking_;
    if (opens || closes) {
        show(stream_.flush());
        thinking_ = opens;
        thought_ = true;
        write_error(console_.dim(opens ? "<think>" : "</think>\n"));
    } else if (!tokenizer_.is_control(id)) {
        show(stream_.push(tokenizer_.bytes(id)));
    }
}

void Answer::show(std::string text) {
    if (thinking_) {
        thought_ |= !text.empty();
        return write_error(console_.dim(harmless(text)));
    }
    if (thought_ && text_.empty()) text.erase(0, text.find_first_not_of('\n')); // the template's gap after the thinking
    text_ += text;
    write_output(console_.output_is_terminal() ? harmless(text) : text);
}

void Answer::finish() {
    console_.clear_status();
    show(stream_.flush());
    if (thinking_) write_error("\n");
    write_output("\n");
}

} // namespace tq
