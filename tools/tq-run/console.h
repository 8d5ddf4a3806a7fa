// The program's side of the standard streams: answers go to standard output, everything else to standard error.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace tq {

// Thrown when the reader of our output has gone; the program then ends quietly.
struct OutputClosed {};

void write_output(std::string_view text); // at once, not buffered. Throws OutputClosed or Error
void write_error(std::string_view text);  // whether it arrives or not

// Throw Error beyond 64 MiB and when reading fails. read_line: without its line end; nothing at the end of input or on Ctrl-C.
std::string read_input();
std::optional<std::string> read_line();

// Control characters, which could steer a terminal, as U+FFFD; line feeds and tabs stay. `text` is valid UTF-8.
std::string harmless(std::string_view text);

enum class ColorMode { automatic, on, off };

// How much decoration each stream gets.
class Console {
  public:
    // simple: no colours and nothing that is overwritten later.
    Console(ColorMode color, bool simple);

    bool input_is_terminal() const { return input_is_terminal_; }
    bool output_is_terminal() const { return output_is_terminal_; }
    // Whether lines may be edited in place on the terminal that both standard input and standard error are; whether an answer's
    // lines may be broken at the terminal's width.
    bool edits() const { return input_is_terminal_ && live_ && !dumb_; }
    bool wraps() const { return output_is_terminal_ && !simple_ && !dumb_; }
    bool color() const { return color_; } // of standard error; standard output is never coloured

    std::string dim(std::string_view text) const;
    std::string bold(std::string_view text) const;

    // A line that the next status, clear_status() or answer overwrites; nothing where standard error is no terminal. It is cut to
    // the terminal's width. With a label, "LABEL: STATE", it is the label that is shortened. Both are UTF-8 without control
    // characters. For long work with a rate and the time left: tools/tq-run/progress.h.
    void status(std::string_view text);
    void status(std::string_view label, std::string_view state);
    void clear_status();

  private:
    bool simple_, dumb_, input_is_terminal_, output_is_terminal_, live_, color_;
    bool status_shown_ = false;
};

} // namespace tq
