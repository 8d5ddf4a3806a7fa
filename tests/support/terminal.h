// Runs a program at a terminal of its own: a test types keys and reads the screen. POSIX only.
#pragma once
#include "tests/support/child_process.h"
#include <chrono>
#include <sys/types.h>

namespace tq::test {

class TerminalSession {
  public:
    // command.input is not used.
    TerminalSession(const Command& command, unsigned columns, unsigned rows = 24);
    ~TerminalSession(); // kills the program if it still runs
    TerminalSession(const TerminalSession&) = delete;
    TerminalSession& operator=(const TerminalSession&) = delete;

    void type(std::string_view keys);
    void resize(unsigned columns, unsigned rows = 24);
    void signal(int number);

    // Waits, a minute at most, until the program has written `text` after everything that earlier calls waited for. False when
    // it ends or the time is over first.
    bool wait_for(std::string_view text);
    int wait_for_end(); // the status: 128 + n after signal n; -1 when it does not end within a minute

    const std::string& output() const { return output_; } // all of it, as written
    bool echoes() const;                                  // whether the terminal shows typed characters
    bool edits_lines() const;                             // whether it passes lines on only when they are complete

  private:
    bool read_more(std::chrono::milliseconds timeout);

    int terminal_ = -1;
    pid_t pid_ = -1;
    int status_ = -1;
    bool ended_ = false;
    std::string output_;
    size_t seen_ = 0;
};

// The number of bytes of the widest line that was overwritten: text between two erasures of a line, without a line feed.
size_t widest_status(std::string_view output);

} // namespace tq::test
