// Ctrl-C as a question that long computations ask. POSIX: interrupt_posix.cpp, Windows: interrupt_windows.cpp.
#pragma once

namespace tq {

// From now on the first Ctrl-C only sets a flag; a second one, before the flag is cleared, ends the program with status 130.
// A read from standard input that waits is cut short.
void catch_interrupts();

// Undoes it: Ctrl-C ends the program.
void release_interrupts();

bool interrupted();
void clear_interrupt();

} // namespace tq
