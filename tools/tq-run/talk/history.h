// What was typed at chat's prompt in earlier runs: a file of one entry a line, the latest last, that only its user may read.
#pragma once
#include <filesystem>
#include <string>
#include <vector>

namespace tq {

// In $XDG_DATA_HOME or ~/.local/share (Windows: %LOCALAPPDATA%), tq-run/chat_history; empty where there is no such place.
std::filesystem::path history_path();

// The latest 1000; none where the file cannot be read.
std::vector<std::string> read_history(const std::filesystem::path& path);

// Nothing is kept of texts over 64 KiB. Throws Error.
void add_to_history(const std::filesystem::path& path, const std::string& text);

} // namespace tq
