// What std::filesystem lacks. POSIX: file_system_posix.cpp, Windows: file_system_windows.cpp.
#pragma once
#include <filesystem>
#include <memory>
#include <string>

namespace tq {

// Holds off every other process that takes the same file; gone with the object, however the process ends.
class FileLock {
  public:
    // A file of its own for the lock, as other programs know it; or one with content, which is read and written meanwhile.
    enum class Of { lock_file, content };

    // Makes the file where there is none. An empty pointer when another holder has it. Throws Error when it cannot be opened.
    static std::unique_ptr<FileLock> try_take(const std::filesystem::path& path, Of of = Of::lock_file);
    ~FileLock();
    FileLock(const FileLock&) = delete;
    FileLock& operator=(const FileLock&) = delete;

  private:
    struct Impl;
    explicit FileLock(std::unique_ptr<Impl> impl);
    std::unique_ptr<Impl> impl_;
};

// Returns when the bytes of the file are on the disk, so that a rename after it cannot outlive them. Throws Error.
void flush_to_disk(const std::filesystem::path& path);

// UTF-8 to the system's own encoding, and back.
inline std::filesystem::path utf8_path(const std::string& text) {
    return std::filesystem::path(std::u8string(text.begin(), text.end()));
}
inline std::string utf8_text(const std::filesystem::path& path) {
    const std::u8string text = path.generic_u8string();
    return {text.begin(), text.end()};
}

} // namespace tq
