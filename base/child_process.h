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

    void kill(); // ends the child at once
    // Returns the child's exit status, 128 + n after signal n (POSIX); nothing when it has not ended within `timeout`.
    std::optional<int> wait(std::chrono::milliseconds timeout);

  private:
    // Returns this process's environment with `changes`.
    static std::vector<std::string> merged_environment(const std::vector<std::string>& changes);
    bool read_more(std::chrono::milliseconds timeout); // appends to unread_; false when the output has ended
    std::optional<std::string> take_line();

    struct Impl;
    std::unique_ptr<Impl> impl_;
    std::string unread_;
    bool output_ended_ = false;
};

// Returns this process's environment: NAME=value, UTF-8.
std::vector<std::string> environment_variables();

// Returns a text such as "exit status 3", "signal 11 (Segmentation fault)" or "exception 0xC0000005".
std::string describe_exit(int status);

} // namespace tq
