// The terminal that the standard streams are connected to. POSIX: terminal_posix.cpp, Windows: terminal_windows.cpp.
#pragma once
#include <cstdint>

namespace tq {

enum class Stream { input, output, error };

bool is_terminal(Stream stream);

// Returns the terminal's width in columns; 0 if the stream is not a terminal, or the width is unknown.
uint32_t terminal_columns(Stream stream);

// Makes the streams carry UTF-8 and escape sequences unchanged. Must be called once, before anything is read or written.
void prepare_terminal();

// While it exists, the terminal on standard input does not echo what is typed and keeps it for the next reader; Ctrl-C and
// Ctrl-Z stay signals. At most one may exist. The terminal is restored when the object is destroyed, when a signal ends the
// program, when restore_terminal() is called, and while the program is suspended. It does nothing if standard input is not a
// terminal, nor on Windows, whose console does the same by itself.
class QuietTerminal {
  public:
    enum class Keeps {
        lines, // with the terminal's line editing
        keys,  // each key as it is pressed; pastes arrive between ESC [200~ and ESC [201~ if the terminal supports it
    };
    explicit QuietTerminal(Keeps keeps);
    ~QuietTerminal();
    QuietTerminal(const QuietTerminal&) = delete;
    QuietTerminal& operator=(const QuietTerminal&) = delete;
};

// Restores the terminal before the program ends abruptly; async-signal-safe.
void restore_terminal();

} // namespace tq
