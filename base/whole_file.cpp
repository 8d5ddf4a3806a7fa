#include "base/whole_file.h"
#include <cerrno>
#include <fmt/format.h>
#include <fstream>
#include <random>

namespace tq {

namespace fs = std::filesystem;

fs::path draft_beside(const fs::path& path, std::string_view suffix) {
    fs::path draft = path;
    return draft += fmt::format(".{:08x}{}", std::random_device{}(), suffix);
}

std::error_code write_file(const fs::path& path, std::initializer_list<std::span<const std::byte>> parts) {
    errno = 0;
    std::ofstream file(path, std::ios::binary);
    for (const std::span<const std::byte> part : parts)
        file.write(reinterpret_cast<const char*>(part.data()), std::streamsize(part.size()));
    file.close();
    if (file) return {};
    return {errno != 0 ? errno : EIO, std::generic_category()};
}

std::error_code write_whole_file(const fs::path& path, std::initializer_list<std::span<const std::byte>> parts,
                                 std::string_view draft_suffix) {
    const fs::path draft = draft_beside(path, draft_suffix);
    std::error_code error = write_file(draft, parts), ignored;
    if (!error) fs::rename(draft, path, error);
    if (error) fs::remove(draft, ignored);
    return error;
}

} // namespace tq
