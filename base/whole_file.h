// Files that are written to a draft beside them, which is renamed when it is whole. So a reader finds the old file or the new
// one. Two writers at the same time do not mix; the later one wins.
#pragma once
#include <cstddef>
#include <filesystem>
#include <initializer_list>
#include <span>
#include <string_view>
#include <system_error>

namespace tq {

// Returns "PATH.XXXXXXXX" with `suffix`, where X are random hexadecimal digits, so that two writers at the
// same time have two drafts.
std::filesystem::path draft_beside(const std::filesystem::path& path, std::string_view suffix = "");

// Writes the file in its place. Returns the system's reason if that failed.
std::error_code write_file(const std::filesystem::path& path, std::initializer_list<std::span<const std::byte>> parts);

// The same by a draft, a file beside it that is then renamed. If that failed, nothing of the draft is left.
std::error_code write_whole_file(const std::filesystem::path& path, std::initializer_list<std::span<const std::byte>> parts,
                                 std::string_view draft_suffix = "");

} // namespace tq
