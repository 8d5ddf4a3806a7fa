#include "base/input_waiting.h"

namespace tq {

// A console's handle is signalled by events that are no input, too, so that nothing can be told.
bool input_is_waiting() { return true; }

} // namespace tq
