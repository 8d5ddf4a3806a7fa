// tq-run bench --compare of the results of -np, and of llama-batched-bench's (--output-format jsonl), side by side.
#pragma once
#include "tools/tq-run/bench/result_files.h"

namespace tq::bench {

// Whether some result has several sequences' fields.
bool has_batched_results(const std::vector<ResultFile>& files);

// Lists of objects of the same names: a test of a column of the tables each. Throws Error, as below.
nlohmann::ordered_json batched_comparison_json(const std::vector<ResultFile>& files);

// Tables with a column for each file, cache and number of threads. A test that a file has several times is the mean of these.
// Throws Error that names the file, the result and the field where one is of neither program.
std::string batched_comparison(const std::vector<ResultFile>& files);

} // namespace tq::bench
