// A file in a place where others may write, too: never a link that leads elsewhere, never a pipe that waits.
#pragma once
#include <cstdio>
#include <filesystem>
#include <memory>

namespace tq {

struct CloseFile {
    void operator()(std::FILE* file) const { std::fclose(file); }
};
using PlainFile = std::unique_ptr<std::FILE, CloseFile>;

// For reading and writing, at its begin; made where there is none. Throws Error when it is there and no regular file of its own
// directory, or cannot be opened.
PlainFile open_plain_file(const std::filesystem::path& path);

} // namespace tq
