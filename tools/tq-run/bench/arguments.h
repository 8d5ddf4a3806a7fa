// The arguments of `tq-run bench`.
#pragma once
#include "model/kv/options.h"
#include "tools/tq-run/engine/speculation.h"

namespace tq::bench {

// A row of the table: a prompt of `prompt` tokens, then `generated` tokens one by one, with `depth` tokens already in the cache.
// With -np the same for each of `sequences` sequences, whose tokens are run together.
struct Test {
    uint32_t prompt, generated, depth;
    uint32_t sequences = 0; // 0: a single one, without -np

    uint32_t slots() const { return sequences == 0 ? 1 : sequences; }
    uint32_t length() const { return depth + prompt + generated; } // of each sequence at the end; each part is below 2^24
    uint64_t tokens() const { return uint64_t(slots()) * (prompt + generated); }
    std::string name() const; // "pp512", "tg128 @ d4096", "pp512+tg128 x 4"
};

enum class Format { markdown, csv, json, jsonl, sql };

// The texts in `model` are lists, too, and so are these, except if they are several values' joint format.
struct Arguments {
    ConsoleArguments console;
    ModelArguments model{.placement = {.fit = "off"}}; // what is measured is what was asked for
    std::string batch_sizes = "0", threads = "0";
    std::string prompts = "512", generated = "128", pairs, depths = "0";
    std::string parallel, parallel_prompts = "512", parallel_generated = "128"; // of -np; parallel: empty: not given
    uint32_t repetitions = 5, delay_seconds = 0;
    std::string format = "md", error_format;
    bool unchecked = false, profile = false, limits = false, no_limits = false, kernels = false, tune = false, reset = false,
         progress = false;
    uint32_t tune_seconds = 50;
    SpeculationArguments speculation;
    std::string spec_text; // a file; empty: random tokens
    std::vector<std::string> compare;

    bool together() const { return !parallel.empty(); } // -np
    // Depth by depth; in llama-bench's order, prompts first, pairs last; of -np in llama-batched-bench's.
    std::vector<Test> tests() const;
    std::vector<uint32_t> depth_list() const;
    std::vector<uint32_t> batch_list() const;
    std::vector<uint32_t> thread_list() const;
    std::vector<std::string> device_list() const;
    // Presets; or all pairs of -ctk and -ctv; or, if only one of them is given, each type for both keys and values.
    std::vector<KvOptions> caches() const;
    std::vector<ModelArguments> model_list() const; // all models on all devices. Throws UsageError
    size_t model_count() const;
    Format output() const;
    std::optional<Format> error_output() const;
};

void add_flags(ArgumentParser& command, Arguments& arguments);

} // namespace tq::bench
