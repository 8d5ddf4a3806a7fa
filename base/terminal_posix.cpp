#include "base/terminal.h"
#include <unistd.h>

namespace tq {

bool is_terminal(Stream stream) {
    return ::isatty(stream == Stream::input ? STDIN_FILENO : stream == Stream::output ? STDOUT_FILENO : STDERR_FILENO) == 1;
}

void prepare_terminal() {} // bytes and escape sequences pass as they are

} // namespace tq
