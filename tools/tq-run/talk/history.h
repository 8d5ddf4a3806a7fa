// The text typed at chat's prompt in earlier runs: a file of one entry a line, the latest last, that only its user may read.
#pragma once
#include <filesystem>
#include <string>
#include <vector>

namespace tq {

// $XDG_DATA_HOME (or ~/.local/share; Windows: %LOCALAPPDATA%)/tq-run/chat_history; empty if there is no such directory.
std::filesystem::path history_path();

// Returns the latest 1000 entries; none if the file cannot be read.
std::vector<std::string> read_history(const std::filesystem::path& path);

// Texts over 64 KiB are not stored. Throws Error.
void add_to_history(const std::filesystem::path& path, const std::string& text);

} // namespace tq
