// SIGINT handling. The handler calls only async-signal-safe functions.
#include "base/interrupt.h"
#include "base/terminal.h"
#include <atomic>
#include <csignal>
#include <string_view>
#include <unistd.h>

namespace tq {
namespace {

std::atomic<bool> flag = false, on_terminal = false;
static_assert(std::atomic<bool>::is_always_lock_free);

void handle(int) {
    if (!flag.exchange(true)) return;
    restore_terminal();
    constexpr std::string_view reset = "\x1b[0m\n";
    if (on_terminal && ::write(STDERR_FILENO, reset.data(), reset.size()) < 0) ::_exit(1);
    ::_exit(130);
}

} // namespace

static void catch_signal(int signal) {
    on_terminal = ::isatty(STDERR_FILENO) == 1;
    struct sigaction action = {};
    action.sa_handler = handle; // and no SA_RESTART: a waiting read must return
    sigemptyset(&action.sa_mask);
    ::sigaction(signal, &action, nullptr);
}

void catch_interrupts() { catch_signal(SIGINT); }
void catch_termination() { catch_signal(SIGTERM); }

void release_interrupts() { std::signal(SIGINT, SIG_DFL); }

bool interrupted() { return flag; }
void clear_interrupt() { flag = false; }

WaitForInput::WaitForInput() {} // a signal interrupts the read by itself
WaitForInput::~WaitForInput() {}

} // namespace tq
