// Reads one question: from the line editor, from a plain terminal, or from a pipe, in which each line is a question. A \ at the
// end of a line joins the next. Two Ctrl-C in a row on an empty line leave; one clears what is typed. Linux silently cuts lines
// of a plain terminal at 4095 bytes, so a line of that length is refused instead of sent. While an answer is shown, a plain
// terminal does not echo what is typed (while_answering).
#include "tools/tq-run/talk/question_reader.h"
#include "base/error.h"
#include "base/error_text.h"
#include "base/interrupt.h"
#include "tools/tq-run/talk/history.h"
#include <cstdio>
#include <fmt/format.h>

namespace tq {

// Linux passes on no more of a line than this if the terminal edits it, and drops the rest silently.
constexpr size_t max_terminal_line_bytes = 4095;

QuestionReader::QuestionReader(Console& console, LineEditor::Complete complete, bool history) : console_(console) {
    if (!console.edits()) return;
    quiet_ = std::make_unique<QuietTerminal>(QuietTerminal::Keeps::keys);
    editor_ = LineEditor::make(std::move(complete));
    if (!editor_) quiet_ = nullptr;
    if (!editor_ || !history) return;
    history_ = history_path();
    for (const std::string& entry : read_history(history_)) editor_->remember(latest_ = entry);
}

std::unique_ptr<QuietTerminal> QuestionReader::while_answering() const {
    const bool echoes = console_.edits() && !editor_;
    return echoes ? std::make_unique<QuietTerminal>(QuietTerminal::Keeps::lines) : nullptr;
}

ReadLine QuestionReader::read_one(const std::string& sign) {
    if (editor_) return editor_->read(console_.bold(sign.substr(0, 1)) + " ");
    if (console_.input_is_terminal()) write_error(console_.bold(sign));
    auto line = read_line();
    if (line && console_.input_is_terminal() && line->size() >= max_terminal_line_bytes) {
        write_error(fmt::format("the terminal has cut this line at {} bytes, so it is not sent: use /read FILE for a long text\n",
                                line->size()));
        return {ReadLine::Kind::line, {}};
    }
    if (line) return {ReadLine::Kind::line, std::move(*line)};
    if (console_.input_is_terminal()) write_error("\n");
    if (!interrupted()) return {ReadLine::Kind::end, {}};
    clear_interrupt();
    std::clearerr(stdin);
    return {console_.input_is_terminal() ? ReadLine::Kind::interrupted : ReadLine::Kind::end, {}, true};
}

ReadLine QuestionReader::read_joined() {
    std::string turn;
    for (const char* sign = "> ";; sign = ". ") {
        ReadLine read = read_one(sign);
        turn += read.text;
        if (read.kind == ReadLine::Kind::end && !turn.empty()) return {ReadLine::Kind::line, std::move(turn)};
        if (read.kind != ReadLine::Kind::line || !turn.ends_with('\\')) return {read.kind, std::move(turn), read.at_once};
        turn.back() = '\n';
    }
}

void QuestionReader::remember(const std::string& text) {
    if (!editor_ || text == latest_ || text.find_first_not_of(" \t\n") == std::string::npos) return;
    editor_->remember(latest_ = text);
    try {
        add_to_history(history_, text);
    } catch (const std::exception& error) {
        history_.clear();
        write_error(console_.dim(fmt::format("[ the history is not saved: {} ]", error_text(error))) + "\n");
    }
}

std::optional<std::string> QuestionReader::next() {
    for (;;) {
        ReadLine read = read_joined();
        if (read.kind == ReadLine::Kind::end) return std::nullopt;
        if (read.kind == ReadLine::Kind::line) {
            asked_to_leave_ = false;
            remember(read.text);
            return std::move(read.text);
        }
        if (asked_to_leave_ && read.at_once && read.text.empty()) return std::nullopt;
        asked_to_leave_ = read.text.empty();
        if (asked_to_leave_) write_error("press Ctrl-C again, or Ctrl-D, to leave\n");
    }
}

} // namespace tq
