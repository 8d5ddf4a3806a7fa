// A whole file mapped read-only into the address space. POSIX: mapped_file_posix.cpp, Windows: mapped_file_windows.cpp.
//
// A file may be truncated while it is mapped, or its disk may disappear. The lost pages then read as zeros, and after the first
// such read check_mapped_files() throws: code that uses the bytes calls it before its results count. (A truncation within the
// last remaining page reads as zeros undetected. Windows does not allow a mapped file to be truncated; if its medium is removed,
// the program ends.)
#pragma once
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>

namespace tq {

// Identifies a file and its state: it differs after every change unless somebody sets the time of modification back.
struct FileIdentity {
    uint64_t device = 0, number = 0, bytes = 0; // number: the inode
    int64_t modified_ns = 0;                    // since 1970
};

class MappedFile {
  public:
    // Throws Error when the file is missing, unreadable, a directory or empty.
    explicit MappedFile(const std::filesystem::path& path);
    ~MappedFile();
    MappedFile(MappedFile&& other) noexcept;
    MappedFile& operator=(MappedFile&& other) noexcept;

    std::span<const std::byte> bytes() const { return bytes_; }
    const FileIdentity& identity() const { return identity_; } // as of the mapping

    static std::optional<std::string> lost_file(); // see lost_mapped_file()

  private:
    struct Region;
    std::span<const std::byte> bytes_;
    FileIdentity identity_;
    Region* region_ = nullptr; // tells the signal handler where the bytes are
};

// Throws an Error when bytes of a file were read that were no longer there. Costs next to nothing.
void check_mapped_files();

// Returns the text of that Error; nothing if no page was lost.
std::optional<std::string> lost_mapped_file();

// Begins to read these bytes of a mapped file into memory, and no more of it. A hint: it does not wait, and never fails.
void read_ahead(std::span<const std::byte> bytes);

} // namespace tq
