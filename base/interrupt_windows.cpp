// Console control events, which arrive on a thread of their own.
#define WIN32_LEAN_AND_MEAN
#define NOMINMAX
#include "base/interrupt.h"
#include <atomic>
#include <windows.h>

namespace tq {
namespace {

std::atomic<bool> flag = false;

BOOL WINAPI handle(DWORD event) {
    if (event != CTRL_C_EVENT && event != CTRL_BREAK_EVENT) return FALSE;
    if (flag.exchange(true)) ::TerminateProcess(::GetCurrentProcess(), 130);
    return TRUE;
}

} // namespace

void catch_interrupts() { ::SetConsoleCtrlHandler(handle, TRUE); }
void catch_termination() {} // Windows has no such request to a program without a window
void release_interrupts() { ::SetConsoleCtrlHandler(handle, FALSE); }
bool interrupted() { return flag; }
void clear_interrupt() { flag = false; }

} // namespace tq
