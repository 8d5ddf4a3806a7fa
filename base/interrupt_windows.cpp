// Console control events, which arrive on a thread of their own.
#include "base/interrupt.h"
#include "base/windows_handle.h"
#include <atomic>
#include <cstdint>
#include <mutex>

namespace tq {
namespace {

std::atomic<bool> flag = false, termination_too = false;
std::mutex reading;
HANDLE reader = nullptr; // the thread that waits for input
uint64_t waits = 0;      // the number of the last WaitForInput, from 1

// 0: no thread waits for input.
uint64_t current_wait() {
    const std::lock_guard lock(reading);
    return reader != nullptr ? waits : 0;
}

// Cancels the read of this wait only. Returns false if the wait has ended: then neither another read of its thread nor a later
// wait is cancelled.
bool cancel_once(uint64_t wait) {
    const std::lock_guard lock(reading);
    return reader != nullptr && waits == wait && (::CancelSynchronousIo(reader), true);
}

// A cancelled read returns with an error. The read may not have begun yet, so this tries again until it has returned.
void cancel_read(uint64_t wait) {
    for (int i = 0; i < 100 && cancel_once(wait); i++) ::Sleep(10);
}

BOOL WINAPI handle_event(DWORD event) {
    const bool is_interrupt = event == CTRL_C_EVENT || event == CTRL_BREAK_EVENT;
    if (!is_interrupt && !termination_too) return FALSE;
    const uint64_t wait = current_wait(); // the reader begins another one when it sees the flag
    if (flag.exchange(true) && is_interrupt) ::TerminateProcess(::GetCurrentProcess(), 130);
    cancel_read(wait);
    if (!is_interrupt) ::Sleep(INFINITE); // returning would end the process at once; Windows does so after some seconds
    return TRUE;
}

} // namespace

void catch_interrupts() { ::SetConsoleCtrlHandler(handle_event, TRUE); }

void catch_termination() {
    termination_too = true;
    ::SetConsoleCtrlHandler(handle_event, TRUE);
}

void release_interrupts() { ::SetConsoleCtrlHandler(handle_event, FALSE); }
bool interrupted() { return flag; }
void clear_interrupt() { flag = false; }

WaitForInput::WaitForInput() {
    static const WindowsHandle self([] {
        HANDLE real = nullptr; // GetCurrentThread() returns one that means another thread there
        ::DuplicateHandle(::GetCurrentProcess(), ::GetCurrentThread(), ::GetCurrentProcess(), &real, 0, FALSE,
                          DUPLICATE_SAME_ACCESS);
        return real;
    }());
    const std::lock_guard lock(reading);
    reader = self.handle;
    waits++;
}

WaitForInput::~WaitForInput() {
    const std::lock_guard lock(reading);
    reader = nullptr;
}

} // namespace tq
