// A whole file, read-only, in the address space. POSIX: mapped_file_posix.cpp, Windows: mapped_file_windows.cpp.
#pragma once
#include <cstddef>
#include <filesystem>
#include <span>

namespace tq {

class MappedFile {
  public:
    // Throws Error when the file is missing, unreadable, a directory or empty.
    explicit MappedFile(const std::filesystem::path& path);
    ~MappedFile();
    MappedFile(MappedFile&& other) noexcept;
    MappedFile& operator=(MappedFile&& other) noexcept;

    std::span<const std::byte> bytes() const { return bytes_; }

  private:
    std::span<const std::byte> bytes_;
};

} // namespace tq
