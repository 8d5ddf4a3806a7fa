// A program that runs beside this one. POSIX: child_process_posix.cpp, Windows: child_process_windows.cpp.
#pragma once
#include <chrono>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace tq {

// Files for a child's standard streams. Empty: it reads nothing, and its output and errors arrive together in read_line.
struct Redirection {
    std::filesystem::path input, output, error;
};

class ChildProcess {
  public:
    // arguments[0] is the program, a path or a name looked up in PATH. `environment`: NAME=value, on top of our own.
    // Throws Error when it cannot be started.
    ChildProcess(const std::vector<std::string>& arguments, const std::vector<std::string>& environment, const Redirection& = {});
    ~ChildProcess(); // ends it
    ChildProcess(const ChildProcess&) = delete;
    ChildProcess& operator=(const ChildProcess&) = delete;

    // The next line of its output, without the line end; nothing when none was complete within `timeout` or the output has ended.
    // Waits less when a signal arrives. The rest of an output that ends without a line end counts as a line.
    std::optional<std::string> read_line(std::chrono::milliseconds timeout);
    bool output_ended() const { return output_ended_; } // and every line has been read

    void kill(); // at once
    // Its exit status, 128 + n after signal n (POSIX); nothing when it has not ended within `timeout`.
    std::optional<int> wait(std::chrono::milliseconds timeout);

  private:
    // Our environment with `changes`.
    static std::vector<std::string> merged_environment(const std::vector<std::string>& changes);
    bool read_more(std::chrono::milliseconds timeout); // appends to unread_; false when the output has ended
    std::optional<std::string> take_line();

    struct Impl;
    std::unique_ptr<Impl> impl_;
    std::string unread_;
    bool output_ended_ = false;
};

// Our own environment: NAME=value, UTF-8.
std::vector<std::string> environment_variables();

// "exit status 3", "signal 11 (Segmentation fault)", "exception 0xC0000005".
std::string describe_exit(int status);

} // namespace tq
