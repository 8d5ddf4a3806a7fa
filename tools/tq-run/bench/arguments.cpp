// The flags of bench are llama-bench's: most take lists and ranges ("128-512+128", "16-128*2"), and what is measured is every
// combination. Texts stay as they were typed until the lists are asked for (tests(), caches(), model_list()), since the same
// flags mean one value for other commands. A flag that is given several times has its values joined by line ends (several).
// Tests come in the order of llama-bench: for each depth first prompts, then generation, then pairs. With -np the tests are
// llama-batched-bench's instead: all sequences together. Caches that are described alike are measured once. A list has at most
// 1024 numbers, so that 1-16777216 is refused and not begun.
#include "tools/tq-run/bench/arguments.h"
#include "base/path_text.h"
#include "base/printable.h"
#include "model/kv/options.h"
#include <algorithm>
#include <charconv>
#include <filesystem>
#include <tuple>

namespace tq::bench {
namespace {

constexpr size_t max_items = 1024; // of a range
constexpr uint32_t max_sequences = 1024;

// Removes the number that `text` begins with and returns it; nothing if there is none up to `max`.
std::optional<uint64_t> take_number(std::string_view& text, uint32_t max) {
    uint64_t value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc() || value > max) return std::nullopt;
    text.remove_prefix(size_t(end - text.data()));
    return value;
}

// Numbers have 64 bits here, so the step beyond the last one does not wrap around.
// "3", "1-4", "128-512+128" or "16-128*2"; nothing if it is none of these.
std::optional<std::vector<uint32_t>> range(std::string_view text, uint32_t max) {
    const auto first = take_number(text, max);
    if (!first) return std::nullopt;
    if (text.empty()) return std::vector{uint32_t(*first)};
    if (text[0] != '-') return std::nullopt;
    text.remove_prefix(1);
    const auto last = take_number(text, max);
    const bool plain = text.empty(); // every number
    const char operation = plain ? '+' : text[0];
    if (!plain) text.remove_prefix(1);
    const auto step = plain ? std::optional<uint64_t>(1) : take_number(text, max);
    const bool grows = step && (operation == '+' ? *step > 0 : operation == '*' && *step > 1 && *first > 0);
    if (!last || *last < *first || !text.empty() || !grows) return std::nullopt;
    std::vector<uint32_t> out;
    for (uint64_t value = *first; value <= *last && out.size() <= max_items;
         value = operation == '+' ? value + *step : value * *step)
        out.push_back(uint32_t(value));
    return out;
}

std::vector<uint32_t> numbers(std::string_view list, uint32_t max, uint32_t min = 0) {
    std::vector<uint32_t> out;
    for (const std::string& item : list_items(list)) {
        const auto values = range(item, max);
        if (!values || values->front() < min)
            fail("it must be a list of whole numbers from {} to {}, or ranges of them (128-512+128, 16-128*2), not {}", min, max,
                 printable(list));
        for (const uint32_t value : *values)
            if (std::ranges::find(out, value) == out.end()) out.push_back(value);
    }
    if (out.size() > max_items) fail("a list has at most {} numbers, not {}", max_items, out.size());
    return out;
}

// "512,128": tokens of a prompt, and of the generation after it.
std::pair<uint32_t, uint32_t> number_pair(const std::string& text) {
    const std::vector<std::string> parts = list_items(text);
    const auto part = [&](size_t i) {
        std::string_view rest = parts.size() == 2 ? std::string_view(parts[i]) : std::string_view();
        const auto value = take_number(rest, max_context);
        if (!value || !rest.empty()) fail("it must be two numbers of tokens, as in 512,128, not {}", printable(text));
        return uint32_t(*value);
    };
    return {part(0), part(1)};
}

// The list of a flag of -np: from 1 on, and each number once.
std::vector<uint32_t> counts(const std::string& list, uint32_t max) {
    const std::vector<uint32_t> out = numbers(list, max, 1);
    size_t given = 0;
    for (const std::string& item : list_items(list)) given += range(item, max)->size();
    if (given != out.size()) fail("{} has a number twice", printable(list));
    return out;
}

ValueCheck list_of_counts(uint32_t max) {
    return parsed_by([max](const std::string& text) { counts(text, max); });
}

ValueCheck list_of_numbers(uint32_t max) {
    return parsed_by([max](const std::string& text) { numbers(text, max); });
}

Format parse_format(const std::string& text) {
    constexpr std::array<std::string_view, 5> names{"md", "csv", "json", "jsonl", "sql"};
    const auto found = std::ranges::find(names, text);
    if (found == names.end()) fail("it must be md, csv, json, jsonl or sql, not {}", printable(text));
    return Format(found - names.begin());
}

// Joins the values of a flag that is given several times into one list, as llama-bench does.
void several(Option option) { option.join(); }

void add_test_flags(ArgumentParser& command, Arguments& a) {
    ArgumentParser group = command.group("Tests");
    const auto add = [&](const char* name, std::string& value, const char* help, uint32_t max) {
        several(add_option(group, name, value, "LIST", help).check(list_of_numbers(max)));
    };
    add("-p,--n-prompt", a.prompts, "prompt tokens, processed in batches; ranges: 128-512+128, 16-128*2; 0: none; default: 512",
        max_context);
    add("-n,--n-gen", a.generated,
        "tokens generated one by one, sampled greedily where the device samples, as in chat; 0: none; default: 128", max_context);
    several(add_option(group, "--n-prompt-gen", a.pairs, "PP,TG",
                       "one test of a prompt and the tokens generated after it; may be given several times")
                .check(parsed_by(number_pair)));
    add("-d,--n-depth", a.depths,
        "tokens already in the cache; at most 256 are computed and their cache entries repeated, as times do not depend on them; "
        "default: 0",
        max_context);
    add("-b,--batch-size", a.batch_sizes, "prompt tokens per batch; default: 0 (the device's choice)", 65536);
    add("-t,--threads", a.threads, "threads of --device cpu; default: 0 (all cores)", 4096);
    add_option(group, "-r,--repetitions", a.repetitions, "N", "runs of each test, after a warm-up run; default: 5")
        .check(number(1, 10000));
    add_option(group, "--delay", a.delay_seconds, "SECONDS",
               "seconds to wait before each test, for the device to cool; default: 0")
        .check(number(0, 3600));
    add_flag(group, "--no-check", a.unchecked, "do not compare the logits with the reference before timing");
}

void add_parallel_flags(ArgumentParser& command, Arguments& a) {
    ArgumentParser group = command.group("Sequences");
    const auto add = [&](const char* name, std::string& value, const char* help, uint32_t max) {
        auto option = add_option(group, name, value, "LIST", help).check(list_of_counts(max));
        several(option);
        return option;
    };
    auto parallel = add("--parallel", a.parallel,
                        "sequences that run together: times their prompts, and then the tokens that all of them generate, as "
                        "llama-batched-bench does; takes -npp, -ntg and -d",
                        max_sequences);
    add("--parallel-prompt", a.parallel_prompts, "prompt tokens of each sequence; default: 512", max_context).needs(parallel);
    add("--parallel-gen", a.parallel_generated, "tokens that each sequence generates; default: 128", max_context).needs(parallel);
    for (const char* other :
         {"--n-prompt", "--n-gen", "--n-prompt-gen", "--profile", "--limits", "--kernels", "--tune", "--compare"})
        parallel.excludes(other);
}

// The flags of every command that takes a model, as lists.
void add_model_lists(ArgumentParser& command, ModelArguments& a) {
    add_model_flags(command, a.model);
    add_place_flags(command, a);
    tq::add_flags(command, a.kv);
    for (const char* name : {"--model", "--hf-repo", "--hf-file"}) several(command.get_option(name));
    const auto list = [&](const char* name, const char* help) { return command.get_option(name).list(help); };
    list("--device",
         "Vulkan devices by index or part of their names (see tq-run devices), and cpu, one after the other; 0/1: both share a "
         "model; default: a GPU, else cpu");
    list("--synthetic", "random weights of real models' shapes instead of files, such as qwen3-8b:q4_k_m");
    auto k = list("--cache-type-k",
                  "cache types of the keys; without -ctv also of the values (tq4,f16 measures tq4/tq4 and f16/f16), with -ctv in "
                  "every pair; default: tq4");
    auto v = list("--cache-type-v", "cache types of the values; without -ctk also of the keys; default: tq4");
    list("--kv", "presets of cache types: balanced, accurate, compact, smallest, f16; or "
                 "files of types per layer")
        .excludes(k)
        .excludes(v);
}

} // namespace

// Splits a list of files or repositories; an existing file whose name has a comma is one.
static std::vector<ModelSource> sources(const ModelSource& source) {
    std::error_code ignored;
    const bool one = std::filesystem::exists(utf8_path(source.path), ignored);
    const std::vector<std::string> paths = one ? std::vector{source.path} : list_items(source.path),
                                   repositories = list_items(source.repository), files = list_items(source.repository_file);
    if (files.size() > 1 && files.size() != repositories.size())
        throw UsageError(fmt::format("-hff names {} files for {} repositories of -hf: name one for each, or none", files.size(),
                                     repositories.size()));
    std::vector<ModelSource> out;
    for (const std::string& path : paths)
        for (size_t i = 0; i < repositories.size(); i++) {
            ModelSource& each = out.emplace_back(source);
            each.path = path;
            each.repository = repositories[i];
            each.repository_file = files[std::min(i, files.size() - 1)];
        }
    return out;
}

std::string Test::name() const {
    std::string text = prompt > 0 ? fmt::format("pp{}", prompt) : "";
    if (generated > 0) text += fmt::format("{}tg{}", prompt > 0 ? "+" : "", generated);
    if (sequences > 0) text += fmt::format(" x {}", sequences);
    if (depth > 0) text += fmt::format(" @ d{}", depth);
    return text;
}

std::vector<uint32_t> Arguments::depth_list() const { return numbers(depths, max_context); }
std::vector<uint32_t> Arguments::batch_list() const { return numbers(batch_sizes, 65536); }
std::vector<uint32_t> Arguments::thread_list() const { return numbers(threads, 4096); }
std::vector<std::string> Arguments::device_list() const {
    return model.placement.layers_per_rank.empty() ? list_items(model.device)
                                                   : std::vector{model.device}; // else each rank has one
}
Format Arguments::output() const { return parse_format(format); }
std::optional<Format> Arguments::error_output() const {
    return error_format.empty() ? std::nullopt : std::optional(parse_format(error_format));
}
size_t Arguments::model_count() const { return model_list().size() / device_list().size(); }

std::vector<Test> Arguments::tests() const {
    std::vector<Test> out;
    if (together()) {
        for (const uint32_t depth : depth_list())
            for (const uint32_t prompt : counts(parallel_prompts, max_context))
                for (const uint32_t count : counts(parallel_generated, max_context))
                    for (const uint32_t sequences : counts(parallel, max_sequences))
                        out.push_back({prompt, count, depth, sequences});
        return out;
    }
    for (const uint32_t depth : depth_list()) {
        for (const uint32_t prompt : numbers(prompts, max_context))
            if (prompt > 0) out.push_back({prompt, 0, depth});
        for (const uint32_t count : numbers(generated, max_context))
            if (count > 0) out.push_back({0, count, depth});
        for (const std::string& pair : list_items(pairs, "\n")) {
            const auto [prompt, count] = pair.empty() ? std::pair(0u, 0u) : number_pair(pair);
            if (prompt + count > 0) out.push_back({prompt, count, depth});
        }
    }
    return out;
}

std::vector<KvOptions> Arguments::caches() const {
    std::vector<KvOptions> out;
    const auto add = [&](const std::string& preset, const std::string& k, const std::string& v) {
        KvArguments one = model.kv;
        one.preset = preset, one.type_k = k, one.type_v = v;
        const KvOptions kv = one.options();
        const auto same = [&](const KvOptions& other) { return describe(other) == describe(kv); };
        if (std::ranges::none_of(out, same)) out.push_back(kv);
    };
    const auto& [presets, types_k, types_v] = std::tie(model.kv.preset, model.kv.type_k, model.kv.type_v);
    for (const std::string& preset : list_items(presets))
        if (types_k.empty() || types_v.empty())
            for (const std::string& both : list_items(types_k + types_v)) add(preset, both, both);
        else
            for (const std::string& k : list_items(types_k))
                for (const std::string& v : list_items(types_v)) add(preset, k, v);
    return out;
}

std::vector<ModelArguments> Arguments::model_list() const {
    ModelArguments one = model;
    one.measured = true;
    one.kv = {};          // each test has its own,
    one.context_size = 1; // and its context: a warning of too long a context would be of no use
    std::vector<ModelArguments> out;
    const auto add = [&] {
        for (const std::string& device : device_list()) {
            one.device = device;
            out.push_back(one);
        }
    };
    for (const ModelSource& each : sources(model.model))
        for (const std::string& shape : list_items(model.synthetic)) {
            one.model = each;
            one.synthetic = shape;
            add();
        }
    return out;
}

void add_flags(ArgumentParser& command, Arguments& a) {
    ArgumentParser measured = command.group("What is measured");
    ArgumentParser speculation = command.group("Speculative decoding");
    ArgumentParser results = command.group("Results");
    add_test_flags(command, a);
    add_model_lists(command, a.model);
    const auto flag = [&](const char* name, bool& value, const char* help) { return add_flag(measured, name, value, help); };
    flag("--profile", a.profile, "time every kernel, in a separate run after each test (always in JSON)");
    auto limits = flag("--limits", a.limits, "measure only the limits of the device: bandwidth, arithmetic");
    flag("--no-limits", a.no_limits, "do not measure the limits for --profile and JSON, which then give no percentages of them")
        .excludes(limits);
    flag("--kernels", a.kernels, "time only the cache's kernels, at the depths of -d: storing, and attention of one token")
        .excludes(limits);
    auto tune = flag("--tune", a.tune,
                     "find the fastest kernel variants on this device, for the models of -m or --synthetic (default: a small and "
                     "a large one), and store them for later runs")
                    .excludes(limits)
                    .excludes("--kernels");
    for (const char* name : {"--kv-condition", "--kv-window", "--kv-layers"}) // the kernels have no norms and no layers
        command.get_option(name).excludes("--kernels").excludes(tune);
    flag("--reset", a.reset, "with --tune: remove the stored tuning, and measure nothing").needs(tune);
    add_option(measured, "--tune-seconds", a.tune_seconds, "SECONDS", "time budget of --tune; default: 50")
        .needs(tune)
        .check(number(1, 3600));
    tq::add_flags(command, a.speculation);
    auto spec =
        command.get_option("--spec").description("measure only what drafts gain (ngram, draft, mtp, or several with commas), on "
                                                 "texts that repeat and that do not, of the first -p and -n; default: none");
    spec.excludes(limits).excludes(tune).excludes("--kernels");
    command.get_option("--model-draft").description("draft model for --spec draft: a smaller one with the same vocabulary");
    add_option(speculation, "--spec-text", a.spec_text, "FILE", "text that --spec copies and edits; default: random tokens")
        .check([](std::string& text) { return std::string(text.empty() ? "it is empty: name a file" : ""); });
    add_option(results, "--compare", a.compare, "FILE...",
               "print these results of -o json or jsonl, or of llama-bench, side by side, and measure nothing")
        .take_all()
        .excludes("--limits")
        .excludes("--kernels")
        .excludes(spec)
        .excludes(tune);
    const auto add_format = [&](const char* name, std::string& value, const char* help) {
        add_option(results, name, value, "FORMAT", help).one_of("md csv json jsonl sql");
    };
    add_parallel_flags(command, a);
    add_format("-o,--output", a.format,
               "format of the results: md, csv, json, jsonl or sql, with llama-bench's field names; default: md");
    add_format("--output-err", a.error_format, "print the results to standard error as well, in this format");
    add_flag(results, "--progress", a.progress, "print a line to standard error for each run of a test");
    tq::add_flags(command, a.console);
}

} // namespace tq::bench
