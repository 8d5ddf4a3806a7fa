// Ctrl-C as a flag that long computations poll. POSIX: interrupt_posix.cpp, Windows: interrupt_windows.cpp.
#pragma once

namespace tq {

// From now on the first Ctrl-C only sets a flag; a second one, before the flag is cleared, ends the program with status 130. A
// pending read from standard input is interrupted.
void catch_interrupts();

// The same for a request to end: SIGTERM.
void catch_termination();

// Undoes catch_interrupts(): Ctrl-C ends the program.
void release_interrupts();

bool interrupted();
void clear_interrupt();

} // namespace tq
