// tq-run bench -np: several sequences together, in llama-batched-bench's terms.
#pragma once
#include "tools/tq-run/bench/arguments.h"

namespace tq::bench {

// Returns the exit status.
int run_batched(const Arguments& arguments, Console& console);

} // namespace tq::bench
