#include "base/standard_streams.h"
#include <cerrno>
#include <fcntl.h>
#include <initializer_list>
#include <unistd.h>

namespace tq {

void occupy_closed_streams() {
    for (const int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) // each open() takes the least number there is
        if (::fcntl(stream, F_GETFD) < 0 && errno == EBADF)
            ::open("/dev/null", stream == STDIN_FILENO ? O_WRONLY : O_RDONLY); // the other way round: its use is an error
}

} // namespace tq
