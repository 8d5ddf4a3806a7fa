// File operations that std::filesystem lacks. POSIX: file_system_posix.cpp, Windows: file_system_windows.cpp.
#pragma once
#include <chrono>
#include <filesystem>
#include <memory>
#include <string_view>
#include <system_error>

namespace tq {

// An exclusive lock against other processes that lock the same file; released with the object, however the process ends.
class FileLock {
  public:
    // lock_file: a file only for the lock, compatible with other programs; content: a file that is read and written meanwhile.
    enum class Of { lock_file, content };

    // Locks the file, and creates it if it does not exist. Returns null if another holder has the lock. Throws Error if the file
    // cannot be opened.
    static std::unique_ptr<FileLock> try_take(const std::filesystem::path& path, Of of = Of::lock_file);
    ~FileLock();
    FileLock(const FileLock&) = delete;
    FileLock& operator=(const FileLock&) = delete;

  private:
    struct Impl;
    explicit FileLock(std::unique_ptr<Impl> impl);
    std::unique_ptr<Impl> impl_;
};

// std::filesystem::last_write_time, but as finely as the file system keeps it: MinGW's knows whole seconds.
std::filesystem::file_time_type last_modified(const std::filesystem::path& path, std::error_code& error);
void set_last_modified_now(const std::filesystem::path& path, std::error_code& error);

// Returns how long ago the file was last read or written, as far as its file system keeps that.
std::chrono::seconds time_since_use(const std::filesystem::path& path, std::error_code& error);

// Returns the bytes that the file takes on its disk, at most its size: less for a file with holes. Windows: the size.
uint64_t taken_bytes(const std::filesystem::path& path, std::error_code& error);

// Returns once the bytes of the file are on the disk, so that a later rename cannot reach the disk before them. Throws Error.
void flush_to_disk(const std::filesystem::path& path);

// Appends `bytes` in one write, so that writes of two programs do not interleave. Creates the file if it does not exist, such
// that only its user may read it. Throws Error.
void append_private(const std::filesystem::path& path, std::string_view bytes);

} // namespace tq
