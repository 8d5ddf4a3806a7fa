// Ctrl-C as a flag that long computations poll. POSIX: interrupt_posix.cpp, Windows: interrupt_windows.cpp.
#pragma once

namespace tq {

// From now on the first Ctrl-C only sets a flag; a second one, before the flag is cleared, ends the program with status 130. A
// pending read from standard input is interrupted, on Windows if it is in the scope of a WaitForInput.
void catch_interrupts();

// The same for a request to end: SIGTERM; on Windows the end of the console or of the session.
void catch_termination();

// Undoes catch_interrupts(): Ctrl-C ends the program.
void release_interrupts();

bool interrupted();
void clear_interrupt();

// While one exists, the main thread reads standard input, and nothing else. There is at most one.
struct WaitForInput {
    WaitForInput();
    ~WaitForInput();
    WaitForInput(const WaitForInput&) = delete;
    WaitForInput& operator=(const WaitForInput&) = delete;
};

} // namespace tq
