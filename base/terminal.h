// What the standard streams are connected to. POSIX: terminal_posix.cpp, Windows: terminal_windows.cpp.
#pragma once
#include <cstdint>

namespace tq {

enum class Stream { input, output, error };

bool is_terminal(Stream stream);

// How wide the terminal is now; 0 where the stream is none, or does not tell.
uint32_t terminal_columns(Stream stream);

// Makes the streams carry UTF-8 and escape sequences, byte for byte. To be called once, before anything is read or written.
void prepare_terminal();

// While it lives, the terminal that standard input is shows nothing of what is typed and keeps it for whoever reads next; Ctrl-C
// and Ctrl-Z stay signals. One at a time. The terminal is as it was found when the object goes, when a signal ends the program,
// when restore_terminal() is called, and as long as the program is suspended. Nothing happens where standard input is no
// terminal, nor on Windows, whose console does so by itself.
class QuietTerminal {
  public:
    enum class Keeps {
        lines, // as the terminal edits them
        keys,  // each as it was pressed; and pastes come between ESC [200~ and ESC [201~ where the terminal can do that
    };
    explicit QuietTerminal(Keeps keeps);
    ~QuietTerminal();
    QuietTerminal(const QuietTerminal&) = delete;
    QuietTerminal& operator=(const QuietTerminal&) = delete;
};

// For what ends the program at once; may be called from a signal handler.
void restore_terminal();

} // namespace tq
