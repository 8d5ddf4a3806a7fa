// A file that only its user may read. POSIX: private_file_posix.cpp, Windows: private_file_windows.cpp.
#pragma once
#include <filesystem>
#include <string_view>

namespace tq {

// Appends `bytes` in one write, so that writes of two programs do not interleave. Creates the file with mode 0600 if it does not
// exist. Throws Error.
void append_private(const std::filesystem::path& path, std::string_view bytes);

} // namespace tq
