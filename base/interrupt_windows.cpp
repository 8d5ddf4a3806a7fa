// Console control events, which arrive on a thread of their own.
#include "base/interrupt.h"
#include "base/windows_handle.h"
#include <atomic>

namespace tq {
namespace {

std::atomic<bool> flag = false, termination_too = false;
std::atomic<HANDLE> reader = nullptr; // the thread that waits for input

// A cancelled read returns with an error. Once more until it has returned, for it may not have begun.
void cancel_read() {
    for (int i = 0; i < 100 && reader != nullptr; i++) {
        ::CancelSynchronousIo(reader);
        ::Sleep(10);
    }
}

BOOL WINAPI handle_event(DWORD event) {
    const bool is_interrupt = event == CTRL_C_EVENT || event == CTRL_BREAK_EVENT;
    if (!is_interrupt && !termination_too) return FALSE;
    if (flag.exchange(true) && is_interrupt) ::TerminateProcess(::GetCurrentProcess(), 130);
    cancel_read();
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
    reader = self.handle;
}

WaitForInput::~WaitForInput() { reader = nullptr; }

} // namespace tq
