// The fields that llama-bench writes for a test, by their names and in their order, and its formats for tables, so that
// programs that read its results read these (tools/llama-bench/llama-bench.cpp of llama.cpp).
#pragma once
#include "tools/tq-run/bench/result.h"

namespace tq::bench {

// All of llama-bench's fields. Those without a meaning here have llama-bench's default values.
Json llama_bench_fields(const Subject& subject, const Result& result);

// One table, llama_bench, of those fields alone, so that results can go into a database that llama-bench has begun.
std::string sql_header();
std::string sql_row(const Json& result);

// All fields that are no lists or objects, those of "model" and "device" among them: model_layers. Each value is quoted.
std::string csv_header(const Json& result);
std::string csv_row(const Json& result);

// A list of flat objects of the same names, as CSV of the same kind.
std::string csv_of(const Json& list);

} // namespace tq::bench
