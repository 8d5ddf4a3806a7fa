// The tables of measured tests.
#pragma once
#include "tools/tq-run/bench/report.h"

namespace tq::bench {

// llama-bench's table, with the columns that tell the rows of `arguments` apart; it outlives the layout.
Layout test_layout(const Arguments& arguments);

// llama-batched-bench's table.
Layout batched_layout();

} // namespace tq::bench
