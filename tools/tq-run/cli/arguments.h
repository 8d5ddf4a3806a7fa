// The flags that commands share, with llama.cpp's names.
#pragma once
#include "tools/tq-run/cli/argument_parser.h"
#include "tools/tq-run/cli/console.h"
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tq {

enum class GgmlType : uint32_t;
enum class ReasoningEffort;
struct KvOptions;
struct PlacementWishes;
struct RopeOverrides;
struct SamplerOptions;

// Runs the chosen command once the command line has been read; returns the exit status.
using Action = std::function<int()>;

struct ConsoleArguments {
    ColorMode color = ColorMode::automatic;
    bool simple = false, verbose = false;

    Console console() const { return Console(color, simple, verbose); }
};

// Storage of the cache; -ctk and -ctv override --kv, for all layers of a file too. Empty: not given.
struct KvArguments {
    std::string preset, type_k, type_v, rotation, scale_rule, layers, conditioning; // preset: or a .json file
    std::optional<uint32_t> window;

    KvOptions options() const; // throws Error if a file cannot be read
    bool names_types() const { return !(preset + type_k + type_v + layers).empty(); }
};

// Says once, on standard error, for each former name of a cache type in a text what is used in its place.
void tell_former_types(const std::string& text);
// Accepts texts with names of cache types for which `parse` does not throw.
template <class Parse> ValueCheck cache_types(Parse parse) {
    return parsed_by([parse](const std::string& text) {
        parse(text);
        tell_former_types(text);
    });
}

// Where the model comes from: a file, the hub, or neither: the demo.
struct ModelSource {
    std::string path;
    std::string repository, repository_file, token; // token: empty: from the environment
    bool offline = false;                           // false: from the environment

    bool is_demo() const { return path.empty() && repository.empty(); }
};

// The scaling of positions (RoPE); values that are not given come from the file.
struct RopeArguments {
    std::string scaling;
    std::optional<float> scale, freq_base, attn_factor, beta_fast, beta_slow;
    uint32_t original_context = 0; // 0: the file's own

    RopeOverrides overrides() const;
};

// Where layers and experts run, with llama.cpp's flags.
struct PlacementArguments {
    std::string gpu_layers;            // -ngl: a number, auto or all; empty: auto
    uint32_t cpu_moe_layers = 0;       // --n-cpu-moe
    bool cpu_moe = false;              // --cpu-moe: of all layers
    bool no_op_offload = false;        // --no-op-offload: they run there in prompts, too
    uint32_t op_offload_min_batch = 0; // --op-offload-min-batch; 0: as predicted
    std::string tensor_split;          // -ts, such as 3,1
    std::vector<bool> cpu_among = {};  // which names in --device are the CPU
    std::string fit = "on";            // or off
    std::string layers_per_rank;       // auto, or a number for each rank of an MPI job; empty: no job

    // Whether anything is wished but what fits.
    bool given() const;
    PlacementWishes wishes() const;
    std::vector<double> shares() const; // of -ts; empty: not given
    // The same without the CPU's shares, if each name in --device has a share.
    std::vector<double> device_shares() const;
    // Throws Error if -ngl and a share of the CPU contradict each other.
    void check() const;
    // Returns the numbers of --layers-per-rank; empty: auto, or not given. Throws Error.
    std::vector<uint32_t> rank_layers() const;
};

struct ModelArguments {
    ModelSource model;
    std::string synthetic; // instead of `model`
    uint32_t layers = 0;   // of a synthetic model; 0: all
    std::string device;    // or several, such as 0,1
    PlacementArguments placement;
    std::optional<uint32_t> context_size; // 0: all the model was trained for
    uint32_t threads = 0, batch_size = 0;
    std::string weights;             // a weight format; empty: as stored in the file
    uint64_t memory_limit_bytes = 0; // 0: none
    KvArguments kv;
    RopeArguments rope;
    bool profile = false, deterministic = false;
    bool measured = false; // it runs on the chosen devices or not at all
    bool alone = false;    // other processes that MPI has started do something else (--shard)
};

// The weight format that --weights names, if one was given.
std::optional<GgmlType> weight_format(const ModelArguments& arguments);

struct EffortArguments { // how much a model thinks that can be told
    std::string level;   // empty: as its chat template does

    std::optional<ReasoningEffort> effort() const;
};

constexpr double max_seed = 9e18;      // a sampler's, whole
uint64_t sampler_seed(int64_t number); // -1: a different one each time

struct SamplingArguments {
    std::optional<float> temperature, top_p, min_p, repeat_penalty, presence_penalty, frequency_penalty;
    std::optional<int64_t> top_k, repeat_last_n;
    std::optional<int64_t> seed;    // none: as -1
    std::optional<int64_t> predict; // -1: until the answer ends, as is none

    bool ignore_end = false;

    // `recommended`, overridden by the given flags.
    SamplerOptions options(SamplerOptions recommended) const;
    uint32_t max_tokens() const { return predict.value_or(-1) < 0 ? UINT32_MAX : uint32_t(*predict); }
};

struct PromptArguments {
    std::string prompt, file;
    bool given = false;

    // Returns the text of -p or -f, or of standard input if the file is "-". Throws Error when the file cannot be read.
    std::string read() const;
};

// Leaves flags out of the help that the command refuses with a reason.
void hide_flags(ArgumentParser& command, std::initializer_list<const char*> names);

// Transform values: "32k" into 32768 tokens; "24G", "8192M" or "1.5GiB" into bytes, of MiB if there is no unit.
ValueCheck tokens(double max);
ValueCheck memory_size();
// llama.cpp's -1, all cores, into 0.
ValueCheck thread_number();

// The names of the presets, and of the cache types, for Option::values.
std::string preset_names();
std::string kv_type_names();

void add_flags(ArgumentParser& command, ConsoleArguments& arguments);

// Returns which part of how many "2/3" is: the second of three. Throws Error.
std::pair<uint32_t, uint32_t> parse_shard(std::string_view text);
void add_model_flags(ArgumentParser& command, ModelSource& source);
void add_flags(ArgumentParser& command, KvArguments& arguments);
void add_flags(ArgumentParser& command, RopeArguments& arguments);
void add_flags(ArgumentParser& command, PlacementArguments& arguments);
// Devices, placement, memory and weights, and random weights instead of a file's.
void add_place_flags(ArgumentParser& command, ModelArguments& arguments);
void add_flags(ArgumentParser& command, ModelArguments& arguments); // with the flags of the model, the cache and RoPE
void add_flags(ArgumentParser& command, EffortArguments& arguments);
void add_flags(ArgumentParser& command, SamplingArguments& arguments);
void add_flags(ArgumentParser& command, PromptArguments& arguments);

// llama.cpp's short names of several letters, and its other spellings, of our flags. CLI11 would read -ctk as "-c tk".
struct OtherName {
    std::string_view name, flag;
};
std::span<const OtherName> other_names();

} // namespace tq
