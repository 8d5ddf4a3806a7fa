#include "base/input_waiting.h"
#include <poll.h>
#include <unistd.h>

namespace tq {

bool input_is_waiting() {
    pollfd input{STDIN_FILENO, POLLIN, 0};
    return ::poll(&input, 1, 0) != 0; // an error, too: the next read reports it
}

} // namespace tq
