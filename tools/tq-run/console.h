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
    bool color() const { return color_; } // of standard error; standard output is never coloured

    std::string dim(std::string_view text) const;
    std::string bold(std::string_view text) const;

    // A line that the next status, clear_status() or answer overwrites; nothing where standard error is no terminal.
    void status(std::string_view text);
    void clear_status();

  private:
    bool input_is_terminal_, output_is_terminal_, color_, live_;
    bool status_shown_ = false;
};

} // namespace tq
