#include "base/error.h"
#include "base/path_text.h"
#include "base/printable.h"
#include "base/private_file.h"
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

namespace tq {

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
