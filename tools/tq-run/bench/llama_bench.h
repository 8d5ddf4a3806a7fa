// The fields that llama-bench writes of a test, by their names and in their order, and its formats for tables: what reads its
// results reads these (tools/llama-bench/llama-bench.cpp of llama.cpp).
#pragma once
#include "tools/tq-run/bench/result.h"

namespace tq::bench {

// All of llama-bench's fields. What has no meaning here has the value that it has there when nobody asks for it.
Json llama_bench_fields(const Subject& subject, const Result& result);

// One table, llama_bench, of those fields alone, so that results can go into a database that llama-bench has begun.
std::string sql_header();
std::string sql_row(const Json& result);

// All fields that are no lists or objects, those of "model" and "device" among them: model_layers. Each value is quoted.
std::string csv_header(const Json& result);
std::string csv_row(const Json& result);

} // namespace tq::bench
