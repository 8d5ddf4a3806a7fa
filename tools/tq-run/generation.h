// What commands show of a generation: the prompt's progress before it, its length and speed after it.
#pragma once
#include "model/session.h"
#include "tools/tq-run/console.h"

namespace tq {

// Ctrl-C (base/interrupt.h) stops it; while the prompt is read, a status line tells how far. To be made when it begins.
GenerateOptions interruptible(Console& console);

// "[ 37 tokens in 1.2 s, first after 310 ms | prompt 550 t/s | generation 41.3 t/s | context 1730 of 2048 ]", without what was
// not measured. `used`: tokens that are in the context now.
std::string generation_line(const Generated& result, size_t used, uint32_t context_size);

// "550 t/s", "41.3 t/s"
std::string describe_rate(double tokens_per_second);

} // namespace tq
