// A file, or a directory, of the test's own that is removed with the object.
#pragma once
#include <atomic>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <string>

namespace tq::test {

inline std::filesystem::path new_temporary_path() {
    static const auto start = std::chrono::steady_clock::now().time_since_epoch().count();
    static std::atomic<int> count = 0;
    return std::filesystem::temp_directory_path() / ("tq-test-" + std::to_string(start) + '-' + std::to_string(count++));
}

class TemporaryFile {
  public:
    explicit TemporaryFile(const std::string& bytes = {}) : path_(new_temporary_path()) {
        std::ofstream(path_, std::ios::binary).write(bytes.data(), std::streamsize(bytes.size()));
    }
    TemporaryFile(const TemporaryFile&) = delete;
    TemporaryFile& operator=(const TemporaryFile&) = delete;
    ~TemporaryFile() {
        std::error_code ignored;
        std::filesystem::remove(path_, ignored);
    }

    const std::filesystem::path& path() const { return path_; }

  private:
    std::filesystem::path path_;
};

class TemporaryDirectory {
  public:
    TemporaryDirectory() : path_(new_temporary_path()) { std::filesystem::create_directory(path_); }
    TemporaryDirectory(const TemporaryDirectory&) = delete;
    TemporaryDirectory& operator=(const TemporaryDirectory&) = delete;
    ~TemporaryDirectory() {
        std::error_code ignored;
        std::filesystem::remove_all(path_, ignored);
    }

    void write(const std::string& name, const std::string& bytes) const {
        std::ofstream(path_ / name, std::ios::binary).write(bytes.data(), std::streamsize(bytes.size()));
    }
    void remove(const std::string& name) const { std::filesystem::remove(path_ / name); }
    const std::filesystem::path& path() const { return path_; }

  private:
    std::filesystem::path path_;
};

} // namespace tq::test
