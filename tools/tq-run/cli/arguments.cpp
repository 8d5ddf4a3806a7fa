// The flags that several commands have, and what their texts become. One add_flags() for each group: names, help, checks. A check
// runs when the line is parsed, so a wrong value is refused before any file is opened. A value that was not given stays empty,
// and options() puts the given ones over what the model recommends (SamplingArguments) or the preset says (KvArguments).
// names_elsewhere has llama.cpp's other names of the same flags.
#include "tools/tq-run/cli/arguments.h"
#include "base/error.h"
#include "base/mapped_file.h"
#include "base/path_text.h"
#include "base/printable.h"
#include "base/text.h"
#include "model/engine/sampling/sampler.h"
#include "model/files/formats/json.h"
#include "model/files/kv_file.h"
#include "model/kv/window.h"
#include "model/weights/synthetic/synthetic.h"
#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <filesystem>
#include <fmt/ranges.h>
#include <random>
#include <set>

namespace tq {
namespace {

constexpr uint64_t max_prompt_bytes = 64u << 20; // of a file, as of standard input

constexpr std::array names_elsewhere{
    OtherName{"-ctk", "--cache-type-k"},
    OtherName{"-ctv", "--cache-type-v"},
    OtherName{"-sys", "--system-prompt"},
    OtherName{"--system", "--system-prompt"},
    OtherName{"-st", "--single-turn"},
    OtherName{"-dev", "--device"},
    OtherName{"-ngl", "--gpu-layers"},
    OtherName{"--n-gpu-layers", "--gpu-layers"},
    OtherName{"-ncmoe", "--n-cpu-moe"},
    OtherName{"-cmoe", "--cpu-moe"},
    OtherName{"-nopo", "--no-op-offload"},
    OtherName{"-ts", "--tensor-split"},
    OtherName{"-fit", "--fit"},
    OtherName{"-ub", "--batch-size"},
    OtherName{"--ubatch-size", "--batch-size"},
    OtherName{"-co", "--color"},
    OtherName{"-pg", "--n-prompt-gen"},
    OtherName{"-oe", "--output-err"},
    OtherName{"-np", "--parallel"},
    OtherName{"-npl", "--parallel"},
    OtherName{"-npp", "--parallel-prompt"},
    OtherName{"-ntg", "--parallel-gen"},
    OtherName{"-temp", "--temp"},
    OtherName{"--temperature", "--temp"},
    OtherName{"--log-verbose", "--verbose"},
    OtherName{"-hf", "--hf-repo"},
    OtherName{"-hfr", "--hf-repo"},
    OtherName{"-hff", "--hf-file"},
    OtherName{"--out", "--output"},
    OtherName{"-cram", "--cache-ram"},
    OtherName{"-hft", "--hf-token"},
    OtherName{"-md", "--model-draft"},
    OtherName{"--spec-draft-model", "--model-draft"},
    OtherName{"-devd", "--device-draft"},
    OtherName{"--spec-draft-device", "--device-draft"},
    OtherName{"-td", "--threads-draft"},
    OtherName{"--spec-draft-threads", "--threads-draft"},
    OtherName{"--draft", "--draft-max"},
    OtherName{"--draft-n", "--draft-max"},
    OtherName{"--spec-draft-n-max", "--draft-max"},
    OtherName{"--draft-n-min", "--draft-min"},
    OtherName{"--spec-draft-n-min", "--draft-min"},
    OtherName{"-to", "--timeout"},
    OtherName{"--embedding", "--embeddings"},
    OtherName{"-jf", "--json-schema-file"},
};

// The names of a table, for Option::values.
template <class Table> std::string joined(const Table& table) {
    std::string names;
    for (const auto& row : table) names += fmt::format("{}{}", names.empty() ? "" : " ", row.name);
    return names;
}

// A number with a unit, in units of 1; a number without one is in units of `bare`. Nothing if it is not a number.
std::optional<double> with_unit(std::string text, double bare) {
    const size_t end = text.find_first_not_of("0123456789.");
    const auto value = end == 0 ? std::nullopt : flag_number(text.substr(0, end));
    if (!value) return std::nullopt;
    if (end == std::string::npos) return *value * bare;
    const size_t power = std::string_view("kmgt").find(char(std::tolower(static_cast<unsigned char>(text[end]))));
    std::string rest = text.substr(end + 1);
    if (rest.starts_with('i')) rest.erase(0, 1);
    if (rest == "B" || rest == "b") rest.clear();
    if (power == std::string::npos || !rest.empty()) return std::nullopt;
    return *value * std::pow(1024.0, double(power + 1));
}

// Replaces the text with the number without its unit, as CLI11 reads it.
ValueCheck in_units(double bare, double max, std::string what) {
    return [=](std::string& text) {
        const auto value = with_unit(text, bare);
        if (!value || !(*value <= max)) return fmt::format("it must be {}, not {}", what, printable(text));
        if (*value != std::floor(*value) && bare == 1) return fmt::format("it must be a whole number, not {}", printable(text));
        text = fmt::format("{:.0f}", *value);
        return std::string();
    };
}

} // namespace

ValueCheck thread_number() {
    return [check = number(-1, 4096)](std::string& text) {
        const std::string problem = check(text);
        if (problem.empty() && text == "-1") text = "0";
        return problem;
    };
}

ValueCheck tokens(double max) {
    return in_units(1, max, fmt::format("a number of tokens from 0 to {}, such as 8192 or 32k", max));
}

std::string preset_names() { return joined(kv_presets); }
std::string kv_type_names() { return joined(kv_types); }

ValueCheck memory_size() { return in_units(1 << 20, std::pow(2.0, 50), "a size such as 24G, 8192M or, in MiB, 8192"); }

std::span<const OtherName> other_names() { return names_elsewhere; }

static void tell_former(const FormerName* former, const std::string& name, const char* what) {
    static std::set<std::string> told;
    if (former && told.insert(name).second)
        write_error(fmt::format("tq-run: {} is no longer {}; {} is used instead\n", name, what, former->now));
}

void tell_former_types(const std::string& text) {
    constexpr const char* of_names = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_";
    for (size_t at = text.find_first_of(of_names), end; at != std::string::npos; at = text.find_first_of(of_names, end)) {
        end = std::min(text.find_first_not_of(of_names, at), text.size());
        const std::string name = lowercase(text.substr(at, end - at));
        tell_former(find_former_type(name), name, "a cache type");
    }
}

// Later steps override earlier ones: the preset or file, the types of keys and values, rotation, scale rule, exceptions for
// layers, conditioning, window. A cache without codes has no window, whatever was asked for, since f16 vectors are exact already.
KvOptions KvArguments::options() const {
    KvOptions kv;
    const bool by_default = preset.empty() && type_k.empty() && type_v.empty();
    if (is_kv_file(preset)) {
        kv = read_kv_file(utf8_path(preset));
        const MappedFile file(utf8_path(preset));
        tell_former_types({reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()});
    } else if (!preset.empty() || by_default)
        kv.set(by_default ? kv_presets.front() : parse_kv_preset(preset));
    if (by_default && !rotation.empty() && parse_rotation(rotation) != RotationKind::wht)
        kv.set(KvSide::key, values_beside(kv.k)); // the quarters of keys of unequal bits are rotated apart, by wht
    if (!type_k.empty()) kv.set(KvSide::key, parse_kv_type(type_k));
    if (!type_v.empty()) kv.set(KvSide::value, parse_kv_type(type_v));
    if (!rotation.empty()) kv.rotation = parse_rotation(rotation);
    if (!scale_rule.empty()) kv.scale_rule = parse_scale_rule(scale_rule);
    if (!layers.empty())
        for (const KvLayers& exception : parse_kv_layers(layers)) kv.layers.push_back(exception);
    if (!conditioning.empty()) kv.conditioning = parse_key_conditioning(conditioning);
    const auto coded = [](const KvLayers& exception) { return exception.types.coded(); };
    kv.window = KvTypes{kv.k, kv.v}.coded() || std::ranges::any_of(kv.layers, coded) ? window.value_or(kv.window) : 0;
    return kv;
}

RopeOverrides RopeArguments::overrides() const {
    return {.type = scaling.empty() ? std::nullopt : std::optional(parse_rope_scaling(scaling)),
            .factor = scale,
            .theta = freq_base,
            .attn_factor = attn_factor,
            .beta_fast = beta_fast,
            .beta_slow = beta_slow,
            .original_context_length = original_context == 0 ? std::nullopt : std::optional(original_context)};
}

std::optional<GgmlType> weight_format(const ModelArguments& arguments) {
    if (arguments.weights.empty()) return std::nullopt;
    return arguments.weights == "q8_0" ? GgmlType::Q8_0 : GgmlType::Q4_0;
}

uint64_t sampler_seed(int64_t number) { return number < 0 ? std::random_device{}() : uint64_t(number); }

SamplerOptions SamplingArguments::options(SamplerOptions recommended) const {
    SamplerOptions o = recommended;
    o.temperature = temperature.value_or(o.temperature);
    o.top_k = top_k ? uint32_t(std::max<int64_t>(0, *top_k)) : o.top_k;
    o.top_p = top_p.value_or(o.top_p);
    o.min_p = min_p.value_or(o.min_p);
    o.repeat_penalty = repeat_penalty.value_or(o.repeat_penalty);
    o.presence_penalty = presence_penalty.value_or(o.presence_penalty);
    o.frequency_penalty = frequency_penalty.value_or(o.frequency_penalty);
    if (repeat_last_n) o.repeat_last_n = *repeat_last_n < 0 ? UINT32_MAX : uint32_t(*repeat_last_n);
    o.seed = sampler_seed(seed.value_or(-1));
    return o;
}

std::string PromptArguments::read() const {
    if (file.empty() && prompt != "-") return prompt;
    if (file.empty() || file == "-") return read_input();
    return read_text_file(utf8_path(file), max_prompt_bytes);
}

std::pair<uint32_t, uint32_t> parse_shard(std::string_view text) {
    uint32_t shard = 0, shards = 0;
    const std::vector<std::string> parts = split(text, "/");
    if (parts.size() == 2 && parse_number(parts[0], shard) && parse_number(parts[1], shards) && shard >= 1 && shard <= shards)
        return {shard, shards};
    fail("it must be like 2/3, the second of three parts, not {}", printable(text));
}

void add_flags(ArgumentParser& command, ConsoleArguments& arguments) {
    const auto to_mode = [](std::string& text) { // the number of a ColorMode
        constexpr std::array<std::string_view, 3> names{"auto", "on", "off"};
        const auto found = std::find(names.begin(), names.end(), text);
        if (found == names.end()) return fmt::format("it must be auto, on or off, not {}", printable(text));
        text = std::to_string(found - names.begin());
        return std::string();
    };
    add_option(command, "--color", arguments.color, "WHEN",
               "colours: auto (on a terminal, unless NO_COLOR is set), on, off; default: auto")
        .transform(to_mode)
        .values("auto on off");
    add_flag(command, "--simple-io", arguments.simple, "plain output: no colours, no status line");
    add_flag(command, "-v,--verbose", arguments.verbose, "print more to standard error");
}

void add_model_flags(ArgumentParser& command, ModelSource& source) {
    auto path = add_option(command, "-m,--model", source.path, "PATH",
                           "GGUF file, or directory with config.json and safetensors; default: the demo model");
    path.check([](std::string& text) {
        return std::string(text.empty() ? "it is empty: name a file, or leave -m out for the demo model" : "");
    });
    ArgumentParser group = command.group("Models from Hugging Face");
    const auto named = [](std::string& text) { return text.empty() ? std::string("it must be user/repository") : std::string(); };
    auto repository =
        add_option(group, "--hf-repo", source.repository, "REPO",
                   "download a model, once: user/repository, or user/repository:QUANT; default quant: Q4_K_M, else Q8_0");
    repository.excludes(path).check(named);
    add_option(group, "--hf-file", source.repository_file, "FILE",
               "name of the GGUF file in the repository; default: chosen by the quant")
        .needs(repository);
    add_option(group, "--hf-token", source.token, "TOKEN", "access token; default: the environment variable HF_TOKEN");
    add_flag(group, "--offline", source.offline, "use only what is already downloaded, as HF_HUB_OFFLINE=1 does");
}

void add_flags(ArgumentParser& command, KvArguments& a) {
    ArgumentParser group = command.group("KV cache");
    const auto add = [&](const char* name, std::string& value, const char* help, const char* type, const ValueCheck& check) {
        return add_option(group, name, value, type, help).check(check);
    };
    add("--kv", a.preset,
        "preset of cache types: balanced (tq4u/tq4 with a window), accurate, compact, smallest, f16; or a FILE.kv.json of "
        "types per layer from tq-run mix; default: balanced, and for one of -ctk and -ctv that is not given tq4, without a "
        "window",
        "PRESET", parsed_by([](const std::string& text) {
            if (is_kv_file(text)) return;
            parse_kv_preset(text);
            tell_former(find_former_preset(text), text, "a preset");
        }))
        .values(preset_names() + " FILE");
    add("--cache-type-k", a.type_k,
        "cache type of the keys: tq2 to tq6, tq8, tq2t to tq4t, tq4u, tq5u, q8_0, q4_0, f16, ...; default: by --kv", "TYPE",
        cache_types(parse_kv_type))
        .values(kv_type_names());
    add("--cache-type-v", a.type_v, "cache type of the values: those of -ctk; default: by --kv", "TYPE",
        cache_types(parse_kv_type))
        .values(kv_type_names());
    add("--kv-layers", a.layers, "other cache types for some layers, such as 0-1,-2:-1=q8_0 or 3=q8_0/tq4; default: none", "LIST",
        cache_types(parse_kv_layers));
    add("--kv-rotation", a.rotation, "rotation before quantisation: wht (Walsh-Hadamard) or haar (dense random); default: wht",
        "NAME", parsed_by(parse_rotation))
        .values(fmt::format("{}", fmt::join(rotation_names, " ")));
    add("--kv-scale", a.scale_rule, "scale rule of tq types: unbiased, least-squares, norm; default: unbiased", "RULE",
        parsed_by(parse_scale_rule))
        .values(fmt::format("{}", fmt::join(scale_rule_names, " ")));
    add_option(group, "--kv-condition", a.conditioning, "HOW",
               "channel scaling of keys and values: none, norms (from the weights), for keys a file from tq-run calibrate, or "
               "auto (quantised keys are measured once per model); default: auto")
        .values("auto norms none FILE");
    add_option(group, "--kv-window", a.window, "N",
               "full-precision window: the last N tokens are kept as f16 beside their codes, and attention reads those; default: "
               "by --kv (256 in the presets), 0 where -ctk or -ctv is given without --kv")
        .check(number(0, max_window_tokens));
    add_option(command, "--kv-recent", a.window, "", "").check(number(0, max_window_tokens)).group(""); // its former name
}

void hide_flags(ArgumentParser& command, std::initializer_list<const char*> names) {
    for (const char* name : names) command.get_option(name).group("");
}

void add_flags(ArgumentParser& command, RopeArguments& a) {
    ArgumentParser group = command.group("Long contexts");
    const auto add = [&](const char* name, auto& value, const char* help, double min, double max) {
        add_option(group, name, value, "N", help).check(number(min, max));
    };
    add_option(group, "--rope-scaling", a.scaling, "TYPE", "RoPE scaling: none, linear, yarn; default: the file's")
        .check(parsed_by(parse_rope_scaling))
        .values("none linear yarn");
    add("--rope-scale", a.scale, "factor by which RoPE scaling extends the context, such as 4; default: the file's", 1, 1024);
    add("--rope-freq-base", a.freq_base, "RoPE base frequency (theta); default: the file's", 1, 1e12);
    add("--yarn-orig-ctx", a.original_context, "context in tokens that the model was trained for; default: 0 (the file's)", 0,
        1 << 30);
    add("--yarn-attn-factor", a.attn_factor, "factor on YaRN's own attention scaling; default: 1", 1e-3, 1e3);
    add("--yarn-beta-fast", a.beta_fast,
        "YaRN: RoPE pairs of more than N rotations in the original context are not scaled; default: 32", 1e-3, 1e6);
    add("--yarn-beta-slow", a.beta_slow,
        "YaRN: RoPE pairs of fewer than N rotations in the original context are scaled in full; default: 1", 1e-3, 1e6);
}

void add_place_flags(ArgumentParser& command, ModelArguments& a) {
    ArgumentParser group = command.group("Device and memory");
    add_option(group, "--device", a.device, "NAME",
               "Vulkan device by index or part of its name (see tq-run devices), or cpu; several that share the model: 0,1; "
               "default: a GPU, else cpu")
        .values("cpu");
    add_flags(command, a.placement);
    add_option(group, "--weights", a.weights, "TYPE",
               "quantise F32, F16 and BF16 weights to q8_0 or q4_0 at load; default: as in the file")
        .one_of("q8_0 q4_0")
        .in_lower_case();
    auto synthetic = add_option(command, "--synthetic", a.synthetic, "SHAPE",
                                "random weights of a real model's shape instead of a file, such as qwen3-8b:q4_k_m");
    synthetic.excludes("--model").excludes("--hf-repo").check(parsed_by([](const std::string& text) { parse_synthetic(text); }));
    add_option(command, "--layers", a.layers, "N", "only the first N layers of a --synthetic model; default: 0 (all)")
        .needs(synthetic)
        .check(number(0, 1024));
    add_option(group, "--memory,--memory-limit-mb", a.memory_limit_bytes, "SIZE",
               "memory limit, such as 24G or 8192M; MiB without a unit; default: all that is free")
        .transform(memory_size());
}

void add_flags(ArgumentParser& command, ModelArguments& a) {
    ArgumentParser group = command.group("Device and memory");
    add_model_flags(command, a.model);
    add_place_flags(command, a);
    const auto add = [&](const char* name, auto& value, const char* help) { return add_option(group, name, value, "N", help); };
    add("-c,--ctx-size", a.context_size,
        "context size in tokens, such as 8192 or 32k; 0: the model's maximum; default: that maximum, at most 8192")
        .transform(tokens(max_context));
    add("-t,--threads", a.threads, "threads of --device cpu; default: all cores").transform(thread_number());
    add("-b,--batch-size", a.batch_size, "prompt tokens per block; default: 0 (the device's choice)").check(number(0, 65536));
    add_flag(group, "--deterministic", a.deterministic,
             "the same logits however a prompt is cut into blocks, and whatever of it was cached; prompts may take longer");
    add_flag(group, "--profile", a.profile, "time every kernel; the run is slower");
    add_flags(command, a.kv);
    add_flags(command, a.rope);
}

std::optional<ReasoningEffort> EffortArguments::effort() const { return find_effort(level); }

void add_flags(ArgumentParser& command, EffortArguments& a) {
    ArgumentParser group = command.group("Sampling");
    const auto known = [](const std::string& level) {
        if (!find_effort(level)) fail("it must be low, medium, high or xhigh, not {}", printable(level));
    };
    add_option(group, "--reasoning-effort", a.level, "LEVEL",
               "how much Qwen3.8 thinks: low, medium, or high, which is xhigh; default: as its chat template says")
        .check(parsed_by(known))
        .values("low medium high xhigh");
}

void add_flags(ArgumentParser& command, SamplingArguments& a) {
    ArgumentParser group = command.group("Sampling");
    const auto add = [&](const char* name, auto& value, double min, double max, const char* help) {
        add_option(group, name, value, "N", help).check(number(min, max));
    };
    add("-n,--predict,--n-predict", a.predict, -2, 1'000'000'000,
        "maximum number of tokens to generate; default: -1 (until the answer ends)");
    add("-s,--seed", a.seed, -1, max_seed, "seed of the sampler; default: -1 (random)");
    add("--temp", a.temperature, 0, 100,
        "temperature; 0: greedy; default: the model's own, else 0.6 (Qwen3.5: 1; without thinking 0.7)");
    add("--top-k", a.top_k, -1, 1'000'000'000,
        "sample from the N most probable tokens; 0: all; default: the model's own, else 20");
    add("--top-p", a.top_p, 0, 1,
        "sample from the fewest tokens whose probabilities sum to N; 1: all; default: the model's own, else 0.95 (0.8 "
        "without thinking)");
    add("--min-p", a.min_p, 0, 1,
        "sample from tokens at least N times as probable as the best; 0: all; default: the model's own, else 0");
    add("--repeat-penalty", a.repeat_penalty, 0.01, 100,
        "divide the logits of repeated tokens by N; 1: off; default: the model's own, else 1");
    add("--repeat-last-n", a.repeat_last_n, -1, 1'000'000'000,
        "last tokens, prompt included, that --repeat-penalty counts as repeated; -1: all; default: 64");
    add("--presence-penalty", a.presence_penalty, -100, 100,
        "subtracted once from the logits of tokens that the answer already has; default: 0");
    add("--frequency-penalty", a.frequency_penalty, -100, 100,
        "subtracted for every time that the answer already has the token; default: 0");
    add_flag(group, "--ignore-eos", a.ignore_end, "never sample the tokens that end an answer");
}

void add_flags(ArgumentParser& command, PromptArguments& a) {
    auto prompt = add_option(command, "-p,--prompt", a.prompt, "TEXT", "the prompt; -: standard input").may_be_empty();
    auto file = add_option(command, "-f,--file", a.file, "FILE", "file with the prompt; -: standard input").excludes(prompt);
    prompt.each([&a](const std::string&) { a.given = true; });
    file.each([&a](const std::string&) { a.given = true; });
}

} // namespace tq
