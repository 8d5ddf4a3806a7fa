// Checks and opening are one system call, or what was checked could be exchanged before it is opened: O_NOFOLLOW refuses a link,
// and the file's kind is asked of the descriptor that is open.
#include "base/error.h"
#include "base/path_text.h"
#include "base/printable.h"
#include "model/hub/plain_file.h"
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

namespace tq {

PlainFile open_plain_file(const std::filesystem::path& path) {
    const std::string name = printable(utf8_text(path), 300);
    // O_NONBLOCK: opening a named pipe must not wait for its other end.
    const int descriptor = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0666);
    const int problem = errno;
    struct stat status {};
    if (descriptor < 0 && problem == ELOOP) fail("{} is a link, which tq-run has not made: remove it", name);
    if (descriptor < 0) fail("cannot write {}: {}", name, std::strerror(problem));
    if (::fstat(descriptor, &status) != 0 || !S_ISREG(status.st_mode)) {
        ::close(descriptor);
        fail("{} is not a regular file, and tq-run has not made it: remove it", name);
    }
    std::FILE* const file = ::fdopen(descriptor, "r+b");
    if (file == nullptr) ::close(descriptor);
    if (file == nullptr) fail("cannot write {}: out of memory", name);
    return PlainFile(file);
}

} // namespace tq
