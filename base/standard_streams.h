// Descriptors 0, 1 and 2. A caller may have closed one of them. POSIX: standard_streams_posix.cpp, Windows:
// standard_streams_windows.cpp.
#pragma once

namespace tq {

// Opens the standard streams that are closed, so that no file opened later gets one of their numbers and, with it, output that is
// meant for people. Reading from or writing to a stream that was closed still fails. Must be called before anything else.
void occupy_closed_streams();

// Ignores SIGXFSZ: writing beyond the system's limit of a file's size (ulimit -f) is then an error like a full disk, and does not
// end the program.
void ignore_file_size_signal();

// Returns true if standard input can be read without waiting, or has ended; on a terminal that edits lines itself, once a line
// is complete.
bool input_is_waiting();

} // namespace tq
