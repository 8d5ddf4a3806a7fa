// A whole file, read-only, in the address space. POSIX: mapped_file_posix.cpp, Windows: mapped_file_windows.cpp.
//
// A file may be cut off while it is mapped, or its disk may go away. What is lost reads as zeros then, and from the first such
// read on check_mapped_files() throws: whoever makes something of the bytes calls it before the result counts. (A cut within the
// last page that is left reads as zeros without notice. Windows lets nobody cut off a mapped file; where its medium goes away,
// the program ends there.)
#pragma once
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>

namespace tq {

// Which file it is, and in which state: another after every change that leaves its time of modification as the system sets it.
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
    const FileIdentity& identity() const { return identity_; } // when it was mapped

    static std::optional<std::string> lost_file(); // see lost_mapped_file()

  private:
    struct Region;
    std::span<const std::byte> bytes_;
    FileIdentity identity_;
    Region* region_ = nullptr; // where the bytes are known to the handler of lost pages
};

// Throws an Error when bytes of a file were read that were no longer there. Costs next to nothing.
void check_mapped_files();

// What that Error says; nothing while all is well.
std::optional<std::string> lost_mapped_file();

} // namespace tq
