// Measurements as JSON: one object per test, which can be understood and compared without any other file. It has llama-bench's
// fields by their names, and more.
#pragma once
#include "base/statistics.h"
#include "tools/tq-run/bench/check.h"
#include "tools/tq-run/bench/energy.h"
#include "tools/tq-run/bench/limits.h"
#include "tools/tq-run/bench/report.h"
#include "tools/tq-run/bench/sequences.h"
#include "tools/tq-run/engine/setup.h"
#include <optional>

namespace tq::bench {

inline constexpr const char* schema_name = "tq-run-bench";
inline constexpr int schema_version = 2;
inline constexpr const char* batched_schema_name = "tq-run-batched-bench"; // of -np
inline constexpr int batched_schema_version = 1;

// A model on a device.
struct Subject {
    Setup setup;
    std::string file;                         // of the model; empty: random weights
    std::string label;                        // "Qwen3 0.6B Q8_0", "qwen3-8b:q4_k_m, 2 layers"
    uint32_t device_index;                    // as in tq-run devices; 0 on the CPU
    std::vector<uint32_t> other_indices = {}; // of the other devices that share the model
};
// Opens both, after a download. Throws Error.
Subject open_subject(const ModelArguments& arguments, const Drafting& drafting, Console& console);

struct Result {
    Test test;
    KvOptions kv;
    uint32_t batch_size = 0, threads = 0; // the values used, never 0
    std::vector<Sample> samples;          // of each repetition
    std::string test_time;                // of its beginning, as in 2026-04-18T11:40:00Z
    std::optional<Check> check;           // none: unchecked
    Company company{};
    uint32_t max_tokens = 0;         // of the cache, in all slots
    double kv_bytes = 0;             // the bytes of the cache that one token of a test of one sequence reads, on average
    std::vector<Energy> energy;      // of all samples together
    std::vector<ProfileRow> kernels; // of one run of the same kind, separate from the samples
    uint32_t profiled_tokens = 0;    // of that run

    std::vector<double> rates() const; // tokens per second, of each sample
    // Nanoseconds of each sample, or of a part of it.
    std::vector<uint64_t> times(uint64_t (*of)(const Sample&)) const;
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
std::string type_of(const KvOptions& kv, KvSide side); // "tq4"; "mix" if a file names the layers' types one by one

// {"backend": "Vulkan", "name": ...}; without a device the processor.
Json describe_device(const Device* device);
Json describe_machine(); // schema, version, build, system, processor
Json describe_model(const Setup& setup);
Json to_json(const Check& check);
Json to_json(const Limits& limits);

// The row of a result: llama-bench's fields, or of -np llama-batched-bench's, and more: all of describe_machine(), model, device,
// kernels...
Row row_of(const Subject& subject, const Result& result, const std::optional<Limits>& limits);

} // namespace tq::bench
