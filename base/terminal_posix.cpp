// The modes of the terminal. The signal handlers here call only async-signal-safe functions.
#include "base/terminal.h"
#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <string_view>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

namespace tq {
namespace {

constexpr std::string_view paste_in_brackets = "\x1b[?2004h", paste_as_typed = "\x1b[?2004l";
constexpr std::array ending_signals{SIGTERM, SIGHUP, SIGQUIT, SIGABRT, SIGPIPE};

termios found;                                // the original modes
std::atomic<bool> changed = false;            // `found` must be restored
std::atomic<bool> brackets_requested = false; // bracketed paste is requested
static_assert(std::atomic<bool>::is_always_lock_free);

int descriptor(Stream stream) {
    return stream == Stream::input ? STDIN_FILENO : stream == Stream::output ? STDOUT_FILENO : STDERR_FILENO;
}

void send(std::string_view sequence) {
    if (::isatty(STDERR_FILENO) == 1 && ::write(STDERR_FILENO, sequence.data(), sequence.size()) < 0) return;
}

void put_back() {
    if (brackets_requested) send(paste_as_typed);
    ::tcsetattr(STDIN_FILENO, TCSANOW, &found);
}

// SA_RESETHAND has already removed the handler.
void end(int signal) {
    restore_terminal();
    ::raise(signal);
}

void handle(int signal, void (*handler)(int), int flags) {
    struct sigaction action = {};
    action.sa_handler = handler;
    action.sa_flags = flags;
    sigemptyset(&action.sa_mask);
    ::sigaction(signal, &action, nullptr);
}

bool has_default(int signal) {
    struct sigaction action = {};
    return ::sigaction(signal, nullptr, &action) == 0 && !(action.sa_flags & SA_SIGINFO) && action.sa_handler == SIG_DFL;
}

// Ctrl-Z: the terminal is the shell's while the program is stopped, so it gets its modes back first, and the program takes its
// own again when it continues. To stop in a handler, the signal needs its default action and must be unblocked, as it is blocked
// while its handler runs. A program that was continued in the background must not set the modes: the terminal would stop it again
// with SIGTTOU.
void suspend(int signal) {
    const int error = errno;
    termios ours{};
    const bool known = changed && ::tcgetattr(STDIN_FILENO, &ours) == 0;
    if (changed) put_back();
    handle(signal, SIG_DFL, 0);
    sigset_t this_one;
    sigemptyset(&this_one);
    sigaddset(&this_one, signal);
    ::raise(signal);
    ::pthread_sigmask(SIG_UNBLOCK, &this_one, nullptr); // the program stops here
    handle(signal, suspend, SA_RESTART);
    if (known && ::tcgetpgrp(STDIN_FILENO) == ::getpgrp()) { // or setting the modes would stop it again
        ::tcsetattr(STDIN_FILENO, TCSANOW, &ours);
        if (brackets_requested) send(paste_in_brackets);
    }
    errno = error;
}

} // namespace

bool is_terminal(Stream stream) { return ::isatty(descriptor(stream)) == 1; }

uint32_t terminal_columns(Stream stream) {
    winsize size{};
    return ::ioctl(descriptor(stream), TIOCGWINSZ, &size) == 0 ? size.ws_col : 0;
}

void prepare_terminal() {} // bytes and escape sequences pass unchanged

QuietTerminal::QuietTerminal(Keeps keeps) {
    if (changed || ::tcgetattr(STDIN_FILENO, &found) != 0) return;
    changed = true;
    for (const int signal : ending_signals)
        if (has_default(signal)) handle(signal, end, SA_RESETHAND | SA_NODEFER);
    if (has_default(SIGTSTP)) handle(SIGTSTP, suspend, SA_RESTART);
    termios quiet = found;
    quiet.c_lflag &= ~tcflag_t(ECHO | ECHONL);
    quiet.c_lflag |= NOFLSH; // Ctrl-C does not discard what was typed before it
    if (keeps == Keeps::keys) {
        quiet.c_lflag &= ~tcflag_t(ICANON);
        quiet.c_cc[VMIN] = 1;
        quiet.c_cc[VTIME] = 0;
        brackets_requested = true;
        send(paste_in_brackets);
    }
    ::tcsetattr(STDIN_FILENO, TCSANOW, &quiet);
}

QuietTerminal::~QuietTerminal() { restore_terminal(); }

void restore_terminal() {
    if (changed.exchange(false)) put_back();
    brackets_requested = false;
}

} // namespace tq
