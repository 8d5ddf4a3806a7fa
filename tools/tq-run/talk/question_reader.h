// Reads chat's questions: from a line editor at a terminal, as plain lines there without one, or from a pipe.
#pragma once
#include "base/terminal.h"
#include "tools/tq-run/cli/console.h"
#include "tools/tq-run/talk/line_editor.h"
#include <filesystem>

namespace tq {

class QuestionReader {
  public:
    // With an editor the terminal is in QuietTerminal's modes as long as this object exists. `history`: whether typed text is
    // kept for later runs.
    QuestionReader(Console& console, LineEditor::Complete complete, bool history);

    // Returns a line, or several: joined by a backslash at their ends, or pasted. Returns nothing at the end of the input or when
    // the user leaves with Ctrl-C, pressed twice if nothing is typed.
    std::optional<std::string> next();

    // Keep it while the model answers: text typed meanwhile is for the next question.
    std::unique_ptr<QuietTerminal> while_answering() const;

    bool edits() const { return editor_ != nullptr; }

  private:
    ReadLine read_one(const std::string& sign);
    ReadLine read_joined();
    void remember(const std::string& text);

    Console& console_;
    std::unique_ptr<QuietTerminal> quiet_;
    std::unique_ptr<LineEditor> editor_;
    std::filesystem::path history_;
    std::string latest_;
    bool asked_to_leave_ = false;
};

} // namespace tq
