// tq-run serve with the demo model, as a child.
#pragma once
#include "base/child_process.h"
#include <csignal>
#include <doctest/doctest.h>

namespace tq::test {

// Both of its streams, line by line, and "exit N" at the end.
class Serving {
  public:
    explicit Serving(const std::string& flags, std::vector<std::string> environment = {})
        : shell_({"sh", "-c", "exec 2>&1; \"$TQ_PROGRAM\" serve --port 0 " + flags + " & echo pid $!; wait $!; echo exit $?"},
                 with_program(std::move(environment)), {}) {
        pid_ = pid_t(std::stol(until("pid ").substr(4)));
    }
    ~Serving() {
        if (pid_ > 0) ::kill(pid_, SIGKILL);
    }
    // The next line that begins so.
    std::string until(const std::string& beginning) {
        for (int i = 0; i < 10'000 && !shell_.output_ended(); i++) {
            const auto line = shell_.read_line(std::chrono::seconds(120));
            if (!line) break;
            said += *line + "\n";
            if (line->starts_with(beginning)) return *line;
        }
        FAIL("no line begins with ", beginning, ", only:\n", said);
        return {};
    }
    uint16_t port() {
        const std::string url = until("open http");
        return uint16_t(std::stoul(url.substr(url.rfind(':') + 1)));
    }
    pid_t process() const { return pid_; }
    void signal(int number) { ::kill(pid_, number); }
    std::string exit() {
        const std::string line = until("exit ");
        pid_ = 0;
        return line;
    }

    std::string said;

  private:
    static std::vector<std::string> with_program(std::vector<std::string> environment) {
        environment.push_back(std::string("TQ_PROGRAM=") + TQ_RUN);
        return environment;
    }

    ChildProcess shell_;
    pid_t pid_ = 0;
};

} // namespace tq::test
