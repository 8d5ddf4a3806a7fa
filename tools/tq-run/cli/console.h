// The program's use of the standard streams: answers go to standard output, everything else to standard error.
#pragma once
#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace tq {

// Thrown when the reader of our output has gone; the program then ends quietly.
struct OutputClosed {};

// At a terminal, write_error and write_text break lines between words at its width. write_output does not, because programs
// read its output, too.
void write_output(std::string_view text); // at once, not buffered. Throws OutputClosed or Error
void write_text(std::string_view text);   // the same, of whole lines
void write_error(std::string_view text);  // errors are ignored
uint32_t text_columns();                  // of the terminal that write_text writes to, for tables; 0: it is none

// Throw Error beyond 64 MiB and when reading fails. read_line: without the line end; nothing at the end of input or on Ctrl-C.
std::string read_input();
std::optional<std::string> read_line();

// Replaces control characters, which could steer a terminal, with U+FFFD, except line feeds and tabs. `text` is valid UTF-8.
std::string harmless(std::string_view text);

enum class ColorMode { automatic, on, off };

// The formatting of each stream.
class Console {
  public:
    // simple: no colours, and no text that is overwritten later.
    Console(ColorMode color, bool simple, bool verbose = false);

    bool input_is_terminal() const { return input_is_terminal_; }
    bool output_is_terminal() const { return output_is_terminal_; }
    // Whether lines may be edited in place, if one terminal is both standard input and standard error; whether an answer's
    // lines may be broken at the terminal's width.
    bool edits() const { return input_is_terminal_ && live_ && !dumb_; }
    bool wraps() const { return output_is_terminal_ && !simple_ && !dumb_; }
    bool color() const { return color_; } // of standard error; standard output is never coloured
    bool verbose() const { return verbose_; }

    std::string dim(std::string_view text) const;
    std::string bold(std::string_view text) const;

    // Shows a line that the next status, clear_status() or answer overwrites. If standard error is no terminal, it is a line
    // of its own after ten seconds of work, and then ever more rarely, at least once a minute; with --simple-io there is none.
    // At a terminal the line is cut to the width. With a label, "LABEL: STATE", only the label is shortened. Both are UTF-8
    // without control characters. For long work with a rate and the time left: tools/tq-run/cli/progress.h.
    void status(std::string_view text);
    void status(std::string_view label, std::string_view state);
    void clear_status();
    void say(std::string_view what); // "tq-run: WHAT" on a line of its own, in place of the status

  private:
    using Clock = std::chrono::steady_clock;
    bool is_time_for_line();

    bool simple_, verbose_, dumb_, input_is_terminal_, output_is_terminal_, live_, color_;
    bool status_shown_ = false;
    // If no terminal shows the status: when the last line was written or the work began, how long until the next, and when the
    // status was cleared, if it was.
    Clock::time_point last_line_{};
    std::chrono::seconds patience_{};
    std::optional<Clock::time_point> cleared_ = Clock::time_point{};
};

} // namespace tq
