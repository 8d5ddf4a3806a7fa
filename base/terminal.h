// What the standard streams are connected to. POSIX: terminal_posix.cpp, Windows: terminal_windows.cpp.
#pragma once

namespace tq {

enum class Stream { input, output, error };

bool is_terminal(Stream stream);

// Makes the streams carry UTF-8 and escape sequences, byte for byte. To be called once, before anything is read or written.
void prepare_terminal();

} // namespace tq
