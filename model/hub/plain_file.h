// A regular file in a directory to which others may write, too: never a link that leads elsewhere, never a pipe that blocks.
#pragma once
#include <cstdio>
#include <filesystem>
#include <memory>

namespace tq {

struct CloseFile {
    void operator()(std::FILE* file) const { std::fclose(file); }
};
using PlainFile = std::unique_ptr<std::FILE, CloseFile>;

// Opens the file for reading and writing, at its beginning; creates it if it does not exist. Throws Error when it exists and is
// not a regular file of its own directory, or cannot be opened.
PlainFile open_plain_file(const std::filesystem::path& path);

} // namespace tq
