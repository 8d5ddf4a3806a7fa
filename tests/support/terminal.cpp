#ifndef _WIN32
#include "tests/support/terminal.h"
#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <poll.h>
#ifdef __APPLE__
#include <util.h>
#else
#include <pty.h>
#endif
#include <stdexcept>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

namespace tq::test {

using namespace std::chrono_literals;

TerminalSession::TerminalSession(const Command& command, unsigned columns, unsigned rows) {
    std::vector<char*> arguments;
    for (const std::string& argument : command.arguments) arguments.push_back(const_cast<char*>(argument.c_str()));
    arguments.push_back(nullptr);
    winsize size{static_cast<unsigned short>(rows), static_cast<unsigned short>(columns), 0, 0};
    pid_ = ::forkpty(&terminal_, nullptr, nullptr, &size);
    if (pid_ < 0) throw std::runtime_error("no terminal");
    if (pid_ == 0) {
        ::setenv("TERM", "xterm", 1);
        for (const std::string& pair : command.environment)
            ::setenv(pair.substr(0, pair.find('=')).c_str(), pair.c_str() + pair.find('=') + 1, 1);
        ::execv(arguments[0], arguments.data());
        ::_exit(127);
    }
}

TerminalSession::~TerminalSession() {
    if (!ended_) {
        ::kill(pid_, SIGKILL);
        ::waitpid(pid_, nullptr, 0);
    }
    ::close(terminal_);
}

void TerminalSession::type(std::string_view keys) {
    while (!keys.empty()) { // its output is read meanwhile, or both would wait for each other
        pollfd ready{terminal_, POLLOUT, 0};
        if (::poll(&ready, 1, 20) > 0 && (ready.revents & POLLOUT)) {
            const ssize_t n = ::write(terminal_, keys.data(), std::min<size_t>(keys.size(), 512));
            if (n < 0 && errno != EAGAIN && errno != EINTR) return;
            if (n > 0) keys.remove_prefix(size_t(n));
        }
        read_more(0ms);
    }
}

void TerminalSession::resize(unsigned columns, unsigned rows) {
    const winsize size{static_cast<unsigned short>(rows), static_cast<unsigned short>(columns), 0, 0};
    ::ioctl(terminal_, TIOCSWINSZ, &size);
}

void TerminalSession::signal(int number) { ::kill(pid_, number); }

bool TerminalSession::read_more(std::chrono::milliseconds timeout) {
    pollfd ready{terminal_, POLLIN, 0};
    if (::poll(&ready, 1, int(timeout.count())) <= 0) return true;
    char block[4096];
    const ssize_t n = ::read(terminal_, block, sizeof block);
    if (n > 0) output_.append(block, size_t(n));
    return n > 0 || (n < 0 && errno == EINTR); // EIO: the program has ended
}

bool TerminalSession::wait_for(std::string_view text) {
    const auto deadline = std::chrono::steady_clock::now() + 60s;
    for (bool more = true;; more = read_more(50ms)) {
        const size_t at = output_.find(text, seen_);
        if (at != std::string::npos) {
            seen_ = at + text.size();
            return true;
        }
        if (!more || std::chrono::steady_clock::now() > deadline) return false;
    }
}

int TerminalSession::wait_for_end() {
    const auto deadline = std::chrono::steady_clock::now() + 60s;
    while (!ended_ && std::chrono::steady_clock::now() < deadline) {
        if (!read_more(20ms)) ::usleep(2000);
        int status = 0;
        if (::waitpid(pid_, &status, WNOHANG) != pid_) continue;
        ended_ = true;
        status_ = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
        for (size_t before = output_.size() + 1; before != output_.size();) { // the rest of its output
            before = output_.size();
            read_more(0ms);
        }
    }
    return ended_ ? status_ : -1;
}

static bool has_flag(int terminal, tcflag_t flag) {
    termios modes{};
    return ::tcgetattr(terminal, &modes) == 0 && (modes.c_lflag & flag) != 0;
}

bool TerminalSession::echoes() const { return has_flag(terminal_, ECHO); }
bool TerminalSession::edits_lines() const { return has_flag(terminal_, ICANON); }

size_t widest_status(std::string_view output) {
    constexpr std::string_view begin = "\r\x1b[K";
    size_t widest = 0, at = output.find(begin);
    while (at != std::string_view::npos) {
        const size_t next = output.find(begin, at + begin.size());
        const std::string_view text = output.substr(at + begin.size(), next - at - begin.size());
        if (next != std::string_view::npos && text.find('\n') == std::string_view::npos) widest = std::max(widest, text.size());
        at = next;
    }
    return widest;
}

} // namespace tq::test
#endif
