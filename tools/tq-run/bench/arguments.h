// The arguments of `tq-run bench`.
#pragma once
#include "tools/tq-run/speculation.h"

namespace tq::bench {

// One row of the table: a prompt of `prompt` tokens, `generated` tokens one by one, or the two in this order, with `depth`
// tokens already in the cache.
struct Test {
    uint32_t prompt, generated, depth;

    uint32_t tokens() const { return prompt + generated; }
    std::string name() const; // "pp512", "tg128 @ d4096", "pp512+tg128"
};

// One row of the table of -np: prompts of `prompt` tokens, then `generated` tokens of each sequence, one of each in a pass, with
// `depth` tokens of each already in the cache.
struct BatchedTest {
    uint32_t prompt, generated, depth, sequences;

    uint64_t tokens() const { return uint64_t(sequences) * (prompt + generated); }
    uint64_t cached_tokens() const { return tokens() + uint64_t(sequences) * depth; } // at its end
    std::string name() const;                                                         // "pp512+tg128 x 4 @ d4096"
};

enum class Format { markdown, csv, json, jsonl, sql };

struct Arguments {
    ConsoleArguments console;
    ModelSource source;
    // Lists, separated by commas, or by line ends where a flag is given several times; the names in `source` are lists too.
    std::string synthetic, devices, types_k, types_v, presets, batch_sizes = "0", threads = "0";
    std::string prompts = "512", generated = "128", pairs, depths = "0";
    std::string parallel, parallel_prompts = "512", parallel_generated = "128"; // of -np; parallel: empty: not given
    uint32_t layers = 0, repetitions = 5, delay_seconds = 0;
    uint64_t memory_limit_bytes = 0;            // 0: none
    PlacementArguments placement{.fit = "off"}; // what is measured is what was asked for
    std::string weights, rotation = "wht", scale_rule = name(KvOptions().scale_rule), conditioning = "auto", format = "md",
                         error_format;
    std::optional<uint32_t> window;
    bool unchecked = false, profile = false, limits = false, no_limits = false, kernels = false, tune = false, reset = false,
         progress = false;
    uint32_t tune_seconds = 50;
    SpeculationArguments speculation;
    std::string spec_text; // a file; empty: random tokens
    std::vector<std::string> compare;

    std::vector<Test> tests() const;                // in llama-bench's order: depth by depth, prompts first, pairs last
    std::vector<BatchedTest> batched_tests() const; // in llama-batched-bench's order, depth by depth
    std::vector<uint32_t> depth_list() const;
    std::vector<uint32_t> batch_list() const;
    std::vector<uint32_t> thread_list() const;
    std::vector<std::string> device_list() const;
    // Presets; or all pairs of -ctk and -ctv; or, where only one of them is given, each type for both keys and values.
    std::vector<KvOptions> caches() const;
    std::vector<ModelArguments> model_list() const; // all models on all devices. Throws UsageError
    size_t model_count() const;
    Format output() const;
    std::optional<Format> error_output() const;
};

void add_flags(ArgumentParser& command, Arguments& arguments);

} // namespace tq::bench
