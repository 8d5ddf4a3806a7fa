// The flags that commands share, by llama.cpp's names.
#pragma once
#include "base/error.h"
#include "model/config.h"
#include "model/formats/blocks.h"
#include "model/kv/options.h"
#include "model/sampler.h"
#include "tools/tq-run/console.h"
#include <CLI/CLI.hpp>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace tq {

// The command line was wrong: exit status 2.
struct UsageError : std::runtime_error {
    using std::runtime_error::runtime_error;
};

// What the chosen command does once the command line has been read; returns the exit status.
using Action = std::function<int()>;

struct ConsoleArguments {
    ColorMode color = ColorMode::automatic;
    bool simple = false, verbose = false;

    Console console() const { return Console(color, simple); }
};

// How the cache is stored; -ctk and -ctv win over --kv, for all layers of a file too. Empty: not given.
struct KvArguments {
    std::string preset, type_k, type_v, rotation, scale_rule, layers, conditioning; // preset: or a .json file
    std::optional<uint32_t> recent;

    KvOptions options() const; // throws Error where a file cannot be read
    bool names_types() const { return !(preset + type_k + type_v + layers).empty(); }
};

// Where the model comes from: a file, the hub, or neither: the demo.
struct ModelSource {
    std::string path;
    std::string repository, repository_file, token; // token: empty: from the environment
    bool offline = false;                           // likewise

    bool is_demo() const { return path.empty() && repository.empty(); }
};

// How positions are stretched; what is not given is the file's own.
struct RopeArguments {
    std::string scaling;
    std::optional<float> scale, freq_base, attn_factor, beta_fast, beta_slow;
    uint32_t original_context = 0; // 0: the file's own

    RopeOverrides overrides() const;
};

struct ModelArguments {
    ModelSource model;
    std::string synthetic; // in its place
    uint32_t layers = 0;   // of a synthetic model; 0: all
    std::string device;
    std::optional<uint32_t> context_size; // 0: all the model was trained for
    uint32_t threads = 0, batch_size = 0;
    std::string weights; // a weight format; empty: as the file has them
    uint64_t memory_limit_mib = 0; // 0: none
    KvArguments kv;
    RopeArguments rope;
    bool profile = false;
};

// The weight format that --weights names, if one was given.
std::optional<GgmlType> weight_format(const ModelArguments& arguments);

struct SamplingArguments {
    std::optional<float> temperature, top_p, min_p, repeat_penalty, presence_penalty, frequency_penalty;
    std::optional<int64_t> top_k, repeat_last_n;
    int64_t seed = -1;    // -1: another one each time
    int64_t predict = -1; // -1: until the answer ends

    bool ignore_end = false;

    // `recommended`, but for what was given.
    SamplerOptions options(SamplerOptions recommended) const;
    uint32_t max_tokens() const { return predict < 0 ? UINT32_MAX : uint32_t(predict); }
};

struct PromptArguments {
    std::string prompt, file;
    bool given = false;

    // From -p, -f, or standard input where it is "-". Throws Error when the file cannot be read.
    std::string read() const;
};

// Accepts what `parse` does not throw at.
template <class Parse> CLI::Validator parsed_by(Parse parse) {
    return CLI::Validator(
        [parse](std::string& text) {
            try {
                parse(text);
            } catch (const Error& error) {
                return std::string(error.what());
            }
            return std::string();
        },
        "");
}

// CLI::Range would let NaN pass.
CLI::Validator number(double least, double most);

void add_flags(CLI::App& command, ConsoleArguments& arguments);
void add_model_flags(CLI::App& command, ModelSource& source);
void add_flags(CLI::App& command, KvArguments& arguments);
void add_flags(CLI::App& command, RopeArguments& arguments);
void add_flags(CLI::App& command, ModelArguments& arguments); // with those of the model, the cache and RoPE
void add_flags(CLI::App& command, SamplingArguments& arguments);
void add_flags(CLI::App& command, PromptArguments& arguments);

// Shows the short names below among the names of an option, and of its value only what option_text says.
class HelpFormatter : public CLI::Formatter {
    std::string make_option_name(const CLI::Option* option, bool is_positional) const override;
    std::string make_option_opts(const CLI::Option* option) const override;
};

// -ctk, -sys and their like as the long names they stand for: CLI11 would read "-c tk". Throws UsageError for those of
// llama.cpp's flags that have no meaning here, with the reason.
std::vector<std::string> expand_short_names(const std::vector<std::string>& arguments);

} // namespace tq
