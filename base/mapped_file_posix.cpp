// mmap for Linux, Android, macOS and the BSDs.
#include "base/error.h"
#include "base/mapped_file.h"
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>

namespace tq {
namespace {

struct Descriptor {
    int fd;
    explicit Descriptor(int fd) : fd(fd) {}
    Descriptor(const Descriptor&) = delete;
    Descriptor& operator=(const Descriptor&) = delete;
    ~Descriptor() {
        if (fd >= 0) ::close(fd);
    }
};

} // namespace

MappedFile::MappedFile(const std::filesystem::path& path) {
    // O_NONBLOCK: opening a named pipe must not wait for a writer.
    const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
    if (file.fd < 0) fail("cannot open {}: {}", path.string(), std::strerror(errno));
    struct stat status {};
    if (::fstat(file.fd, &status) != 0) fail("cannot read the size of {}: {}", path.string(), std::strerror(errno));
    if (S_ISDIR(status.st_mode)) fail("{} is a directory, not a file", path.string());
    if (!S_ISREG(status.st_mode)) fail("{} is not a regular file, so it cannot be mapped into memory", path.string());
    if (status.st_size == 0) fail("{} is empty", path.string());
    if (!std::in_range<size_t>(status.st_size)) {
        fail("{} has {} bytes, more than this machine can address", path.string(), status.st_size);
    }
    const auto size = size_t(status.st_size);
    void* const address = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file.fd, 0);
    if (address == MAP_FAILED) fail("cannot map the {} bytes of {}: {}", size, path.string(), std::strerror(errno));
    bytes_ = {static_cast<const std::byte*>(address), size};
}

MappedFile::~MappedFile() {
    if (!bytes_.empty()) ::munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
}

MappedFile::MappedFile(MappedFile&& other) noexcept : bytes_(std::exchange(other.bytes_, {})) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
    std::swap(bytes_, other.bytes_);
    return *this;
}

} // namespace tq
