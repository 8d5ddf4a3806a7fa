// The fields that llama-bench and llama-batched-bench write for a test, by their names and in their order, and the formats of
// tables, so that programs that read these results read ours (tools/llama-bench and tools/batched-bench of llama.cpp).
#pragma once
#include "tools/tq-run/bench/result.h"

namespace tq::bench {

// All of llama-bench's fields. Those without a meaning here have llama-bench's default values.
Json llama_bench_fields(const Subject& subject, const Result& result);

// All of llama-batched-bench's fields, of a test of several sequences.
Json llama_batched_bench_fields(const Subject& subject, const Result& result);

} // namespace tq::bench
