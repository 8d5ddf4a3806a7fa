// flock() locks belong to the open file, not to the process as fcntl()'s do, so two threads of one process exclude each other,
// too, and closing another descriptor of the same file does not release them. Each lock therefore opens the file anew.
#include "base/error.h"
#include "base/file_system.h"
#include "base/path_text.h"
#include "base/printable.h"
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

namespace tq {

struct FileLock::Impl {
    int fd;
    explicit Impl(int fd) : fd(fd) {}
    ~Impl() { ::close(fd); } // which also releases the lock
};

FileLock::FileLock(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
FileLock::~FileLock() = default;

std::unique_ptr<FileLock> FileLock::try_take(const std::filesystem::path& path, Of of) {
    const int fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (fd < 0) fail("cannot open {}{}: {}", of == Of::content ? "" : "the lock file ", utf8_text(path), std::strerror(errno));
    auto impl = std::make_unique<Impl>(fd);
    while (::flock(fd, LOCK_EX | LOCK_NB) != 0) {
        if (errno == EWOULDBLOCK) return nullptr;
        if (errno == EINTR) continue;
        // A file system without locks (some network ones) must not make its files unusable.
        if (errno == ENOLCK || errno == ENOTSUP || errno == ENOSYS) break;
        fail("cannot lock {}: {}", utf8_text(path), std::strerror(errno));
    }
    return std::unique_ptr<FileLock>(new FileLock(std::move(impl)));
}

std::filesystem::file_time_type last_modified(const std::filesystem::path& path, std::error_code& error) {
    return std::filesystem::last_write_time(path, error);
}

void set_last_modified_now(const std::filesystem::path& path, std::error_code& error) {
    std::filesystem::last_write_time(path, std::filesystem::file_time_type::clock::now(), error);
}

std::chrono::seconds time_since_use(const std::filesystem::path& path, std::error_code& error) {
    struct stat status {};
    error.clear();
    if (::stat(path.c_str(), &status) != 0) error.assign(errno, std::generic_category());
    return std::chrono::seconds(std::time(nullptr) - std::max(status.st_atime, status.st_mtime));
}

uint64_t taken_bytes(const std::filesystem::path& path, std::error_code& error) {
    struct stat status {};
    error.clear();
    if (::stat(path.c_str(), &status) != 0) error.assign(errno, std::generic_category());
    return std::min(uint64_t(status.st_size), uint64_t(status.st_blocks) * 512);
}

void flush_to_disk(const std::filesystem::path& path) {
    const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
    if (fd < 0) fail("cannot open {}: {}", utf8_text(path), std::strerror(errno));
    const int error = ::fsync(fd) == 0 ? 0 : errno;
    ::close(fd);
    if (error != 0 && error != EINVAL) fail("cannot write {} to the disk: {}", utf8_text(path), std::strerror(error));
}

void append_private(const std::filesystem::path& path, std::string_view bytes) {
    const int fd = ::open(path.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NONBLOCK, 0600);
    struct stat status {};
    const bool regular = fd >= 0 && ::fstat(fd, &status) == 0 && S_ISREG(status.st_mode);
    const ssize_t written = regular ? ::write(fd, bytes.data(), bytes.size()) : -1;
    const int error = fd >= 0 && !regular ? EINVAL : errno;
    if (fd >= 0) ::close(fd);
    if (written < 0) fail("cannot write {}: {}", printable(utf8_text(path), 200), std::strerror(error));
    if (size_t(written) < bytes.size()) fail("cannot write {}: the disk is full", printable(utf8_text(path), 200));
}

} // namespace tq
