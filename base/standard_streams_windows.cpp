#include "base/standard_streams.h"

namespace tq {

void occupy_closed_streams() {} // the C library keeps 0, 1 and 2 for the standard streams, open or not

void ignore_file_size_signal() {} // Windows has no such signal

// A console's handle is also signalled by events that are no input, so it does not tell whether input waits.
bool input_is_waiting() { return true; }

} // namespace tq
