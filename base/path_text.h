// Paths as UTF-8 text, on every system: the one place where text becomes a path, and a path text. No other code makes a path from
// text, because std::filesystem would use the system's own encoding, which may not be UTF-8. POSIX: path_text_posix.cpp, Windows:
// path_text_windows.cpp.
#pragma once
#include <filesystem>
#include <string>
#include <string_view>

namespace tq {

// POSIX: the same bytes, UTF-8 or not. Windows: invalid UTF-8, or invalid UTF-16, becomes U+FFFD.
std::filesystem::path utf8_path(std::string_view text);
std::string utf8_text(const std::filesystem::path& path); // with "/" between its parts

} // namespace tq
