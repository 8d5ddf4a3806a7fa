// A file that only its user may read. POSIX: private_file_posix.cpp, Windows: private_file_windows.cpp.
#pragma once
#include <filesystem>
#include <string_view>

namespace tq {

// Adds `bytes` to its end in one write, so that two programs do not mix theirs; made, mode 0600, where it is not there. Throws
// Error.
void append_private(const std::filesystem::path& path, std::string_view bytes);

} // namespace tq
