// A child process. POSIX: child_process_posix.cpp, Windows: child_process_windows.cpp.
#pragma once
#include <chrono>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace tq {

// Files for a child's standard streams. Empty: the child reads nothing, and its output and errors arrive together in read_line.
struct Redirection {
    std::filesystem::path input, output, error;
    bool own_group = false; // signals of the terminal, such as Ctrl-C, do not reach the child
};

class ChildProcess {
  public:
    // Starts the program arguments[0], a path or a name that is looked up in PATH, with `environment` (NAME=value) added to
    // this process's own. Throws Error when it cannot be started.
    ChildProcess(const std::vector<std::string>& arguments, const std::vector<std::string>& environment, const Redirection& = {});
    ~ChildProcess(); // ends the child
    ChildProcess(const ChildProcess&) = delete;
    ChildProcess& operator=(const ChildProcess&) = delete;

    // Returns the next line of the child's output without the line end, or nothing when no line was complete within `timeout`
    // or the output has ended. A signal shortens the wait. The rest of an output that ends without a line end counts as a line.
    std::optional<std::string> read_line(std::chrono::milliseconds timeout);
    bool output_ended() const { return output_ended_; } // and every line has been read

    void kill();       // ends the child at once
    void ask_to_end(); // POSIX: SIGTERM; Windows: Ctrl-Break if the child has its own group, else as kill()
    // Returns the child's exit status, 128 + n after signal n (POSIX); nothing when it has not ended within `timeout`.
    std::optional<int> wait(std::chrono::milliseconds timeout);

  private:
    bool read_more(std::chrono::milliseconds timeout); // appends to unread_; false when the output has ended
    std::optional<std::string> take_line();

    struct Impl;
    std::unique_ptr<Impl> impl_;
    std::string unread_;
    bool output_ended_ = false;
};

// Runs a program to its end with this process's own streams and terminal, and returns its exit status, as wait(). Ctrl-C and the
// end of the terminal are its business alone meanwhile; a caught termination (base/interrupt.h) is passed on. Throws Error when
// it cannot be started.
int run_in_foreground(const std::vector<std::string>& arguments, const std::vector<std::string>& environment);

// Returns a text such as "exit status 3", "signal 11 (Segmentation fault)" or "exception 0xC0000005".
std::string describe_exit(int status);

} // namespace tq
