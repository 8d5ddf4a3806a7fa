// Whether somebody has typed something. POSIX: input_waiting_posix.cpp, Windows: input_waiting_windows.cpp.
#pragma once

namespace tq {

// Returns true if standard input can be read without waiting, or has ended; on a terminal that edits lines itself, once a line
// is complete.
bool input_is_waiting();

} // namespace tq
