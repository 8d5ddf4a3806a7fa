#include "base/standard_streams.h"
#include <cerrno>
#include <csignal>
#include <fcntl.h>
#include <initializer_list>
#include <poll.h>
#include <unistd.h>

namespace tq {

void occupy_closed_streams() {
    for (const int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) // open() returns the lowest free number
        if (::fcntl(stream, F_GETFD) < 0 && errno == EBADF)
            ::open("/dev/null", stream == STDIN_FILENO ? O_WRONLY : O_RDONLY); // the wrong way round: using it is an error
}

void ignore_file_size_signal() { std::signal(SIGXFSZ, SIG_IGN); }

bool input_is_waiting() {
    pollfd input{STDIN_FILENO, POLLIN, 0};
    return ::poll(&input, 1, 0) != 0; // an error, too: the next read reports it
}

} // namespace tq
