// The output of commands about a generation: the prompt's progress before it, its length and speed after it.
#pragma once
#include "model/engine/session.h"
#include "tools/tq-run/cli/console.h"

namespace tq {

// Ctrl-C (base/interrupt.h) stops it; a status line shows the prompt's progress. Call it when the generation begins.
GenerateOptions interruptible(Console& console);

// "[ 37 tokens in 1.2 s, first after 310 ms | prompt 550 t/s | generation 41.3 t/s | 20 of 24 drafted accepted | context 1730 of
// 2048 ]", without values that were not measured. `used`: tokens that are in the context now.
std::string generation_line(const Generated& result, size_t used, uint32_t context_size);

// "550 t/s", "41.3 t/s"
std::string describe_rate(double tokens_per_second);

} // namespace tq
