// Prints the results of -np: as llama-batched-bench's table, or as JSON or CSV with its fields by their names, and more.
#pragma once
#include "tools/tq-run/bench/result.h"
#include "tools/tq-run/bench/sequences.h"
#include <map>
#include <nlohmann/json.hpp>

namespace tq::bench {

inline constexpr const char* batched_schema_name = "tq-run-batched-bench";

struct BatchedResult {
    BatchedTest test;
    KvOptions kv;
    uint32_t batch_size = 0, threads = 0;
    uint32_t max_tokens = 0;          // of the cache, in all slots
    std::vector<BatchedTime> samples; // of each repetition
    std::string test_time;            // of its beginning
    std::optional<Check> check;       // none: unchecked
    Company company{};                // no sequences: not compared

    Statistics prompt_ns() const;
    Statistics generated_ns() const;
};

Json to_json(const Subject& subject, const BatchedResult& result);

class BatchedReporter {
  public:
    using Write = std::function<void(std::string_view)>;

    BatchedReporter(Format format, Write write) : format_(format), write_(std::move(write)) {}

    void add(const Subject& subject, const BatchedResult& result);
    void finish(); // prints the text after the last result; also where there was none

  private:
    void add_row(const Subject& subject, const BatchedResult& result);
    void add_footer(const Subject& subject, const BatchedResult& result);

    const Format format_;
    const Write write_;
    bool begun_ = false;
    std::string heading_; // of the last table
    Json results_ = Json::array();
    std::vector<std::string> footer_;            // lines, each once
    std::map<std::string, std::string> company_; // by model, cache and device: the numbers of sequences that were compared
    double deviation_ = 0;                       // the greatest of a time, as a part of its mean
    size_t repetitions_ = 0;
};

// Those of -o and -oe.
class BatchedReporters {
  public:
    explicit BatchedReporters(const Arguments& arguments);
    void add(const Subject& subject, const BatchedResult& result);
    void finish();

  private:
    std::vector<BatchedReporter> all_;
};

} // namespace tq::bench
