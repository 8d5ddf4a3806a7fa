// A file of the test's own that goes away with the object.
#pragma once
#include <atomic>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <string>

namespace tq::test {

class TemporaryFile {
  public:
    explicit TemporaryFile(const std::string& bytes = {}) {
        static const auto start = std::chrono::steady_clock::now().time_since_epoch().count();
        static std::atomic<int> count = 0;
        path_ = std::filesystem::temp_directory_path() / ("tq-test-" + std::to_string(start) + '-' + std::to_string(count++));
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

} // namespace tq::test
