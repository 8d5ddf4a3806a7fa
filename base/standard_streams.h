// Descriptors 0, 1 and 2, one of which a caller may have closed. POSIX: standard_streams_posix.cpp, Windows:
// standard_streams_windows.cpp.
#pragma once

namespace tq {

// Takes the numbers of standard streams that are closed, so that no file which is opened later gets one, and with it what is
// meant for people. Reading from and writing to such a stream fails, as it did. To be called first of all.
void occupy_closed_streams();

} // namespace tq
