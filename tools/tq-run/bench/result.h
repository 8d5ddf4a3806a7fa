// Measurements as JSON: one object per test, which can be understood and compared without any other file. It has llama-bench's
// fields by their names, and more.
#pragma once
#include "base/statistics.h"
#include "model/ranks/rank_group.h"
#include "runtime/profile.h"
#include "tools/tq-run/bench/arguments.h"
#include "tools/tq-run/bench/check.h"
#include "tools/tq-run/bench/energy.h"
#include "tools/tq-run/bench/limits.h"
#include "tools/tq-run/engine.h"
#include <nlohmann/json_fwd.hpp>
#include <optional>

namespace tq::bench {

using Json = nlohmann::ordered_json;

inline constexpr const char* schema_name = "tq-run-bench";
inline constexpr int schema_version = 2;

// A model on a device.
struct Subject {
    Setup setup;
    std::string file;                         // of the model; empty: random weights
    std::string label;                        // "Qwen3 0.6B Q8_0", "qwen3-8b:q4_k_m, 2 layers"
    uint32_t device_index;                    // as in tq-run devices; 0 on the CPU
    std::vector<uint32_t> other_indices = {}; // of the other devices that share the model
};
// Opens both, after a download. Throws Error.
Subject open_subject(const ModelArguments& arguments, Console& console);

struct Result {
    Test test;
    KvOptions kv;
    uint32_t batch_size = 0, threads = 0; // the values used, never 0
    std::vector<uint64_t> samples_ns;     // each of test.tokens() tokens
    std::string test_time;                // of its beginning, as in 2026-04-18T11:40:00Z
    std::optional<Check> check;           // none: unchecked
    uint64_t weight_bytes = 0;            // the bytes that one token reads
    double kv_bytes = 0;                  // the bytes of the cache that one token of the test reads, on average
    std::vector<Energy> energy;           // of all samples together
    std::vector<ProfileRow> kernels;      // of one run of the same kind, separate from the samples
    uint32_t profiled_tokens = 0;         // of that run
    std::vector<RankUse> ranks;           // of each rank, in rank_ns, with the runs that are no samples; empty without ranks
    uint64_t rank_ns = 0;

    std::vector<double> rates() const; // tokens per second, of each sample
    Statistics tokens_per_second() const { return statistics(rates()); }
    Statistics nanoseconds() const;
    // The bytes that a token reads over its time, in 1e9 per second; none for prompts, which read weights once for a whole block.
    std::optional<double> gigabytes_per_second() const;
};

// The threads that --threads stands for.
uint32_t thread_count(uint32_t threads);

// The bytes of weights that one token reads: all except the rows of an embedding that is not also the head.
uint64_t weight_bytes_per_token(const Setup& setup);
// llama-bench's n_gpu_layers: the layers whose attention is on a device; -1 for all of them and the head, 0 for none.
int n_gpu_layers(const Setup& setup);
// The format of most of the weights: "Q4_K".
std::string weight_type(const Weights& weights);
uint64_t parameters(const Weights& weights);
std::string backend(const Setup& setup);               // "Vulkan" or "CPU"
std::string type_of(const KvOptions& kv, KvSide side); // "tq4"; "mix" where a file names the layers' types one by one

// {"backend": "Vulkan", "name": ...}; without a device the processor.
Json describe_device(const Device* device);
Json describe_machine(); // schema, version, build, system, processor
Json describe_model(const Setup& setup);
Json to_json(const Check& check);
// An element of llama-bench's array, with more: all of describe_machine(), model, device, kernels...
Json to_json(const Subject& subject, const Result& result, const std::optional<Limits>& limits);
Json to_json(const Limits& limits);

// The time of each rank that shares the model, what it has sent and received, and the share of their time that they waited.
std::string ranks_text(const Setup& setup, const Result& result);
Json ranks_json(const Setup& setup, const Result& result);

} // namespace tq::bench
