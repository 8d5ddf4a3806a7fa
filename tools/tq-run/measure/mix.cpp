// tq-run mix: chooses types for each layer's keys and values, so that a cache of a given number of bytes costs least; measures
// them, and writes a file for --kv.
// The cost of a mix is predicted as the sum of the costs of its parts: each type in one layer and side, with all others at the
// base type, is measured once (probes). The best mix under a budget is then found exactly (Sensitivities::best_mix), and measured
// on other chunks of the text beside its rivals: the best pair of types for all layers, and the largest uniform cache. Whichever
// measures best is written, so a prediction that fails costs nothing.
// With -c the budget is what memory leaves (MemoryBudget). Scratch can grow with the types, so the budget shrinks until the plan
// fits (fitting_mix).
#include "base/error.h"
#include "base/interrupt.h"
#include "base/printable.h"
#include "base/text.h"
#include "model/files/kv_file.h"
#include "tools/tq-run/cli/byte_files.h"
#include "tools/tq-run/cli/table.h"
#include "tools/tq-run/commands.h"
#include "tools/tq-run/engine/setup.h"
#include "tools/tq-run/measure/type_search.h"
#include <algorithm>

namespace tq {
namespace {

using quality::Summary;

constexpr const char* default_types = "tq2,tq2t,tq3,tq3t,tq4,tq4t,tq4u,tq5,tq5u,tq6,tq8,q8_0,f16";

struct MixArguments {
    ConsoleArguments console;
    ModelArguments model{.measured = true};
    TypeSearchOptions search;
    std::string types = default_types, output;
    uint64_t budget = 0; // bytes per token; 0: as many as the memory has room for
};

// Parses "a,b" into types, each once.
std::vector<KvType> parse_types(const std::string& list) {
    std::vector<KvType> out;
    for (const std::string& name : split(list, ",")) {
        const KvType type = parse_kv_type(name);
        if (std::ranges::find(out, type) == out.end()) out.push_back(type);
    }
    return out;
}

// The bytes per token that the memory leaves for a context, by the plan that `tq-run plan` shows.
class MemoryBudget {
  public:
    MemoryBudget(const Setup& setup, uint32_t context_size, uint64_t limit_mib) : setup_(setup), context_size_(context_size) {
        const MemoryPlan plan = setup.plan(context_size, KvOptions{KvType::tq2, KvType::tq2});
        available_ = limit_mib == 0 ? plan.available : std::min(plan.available, limit_mib << 20);
        const uint64_t taken = plan.weights + plan.scratch;
        if (plan.largest_part > plan.allocation_limit || taken >= available_)
            fail("{} MiB leave no room for a cache of {} tokens, as weights and scratch take {}", available_ >> 20, context_size,
                 taken >> 20);
        bytes_ = (available_ - taken) / (uint64_t(ForwardOptions{.context_size = context_size}.pages()) * page_tokens);
    }
    uint64_t bytes() const { return bytes_; }

    // The number of bytes per token by which a cache is still too large; scratch can grow with it.
    uint64_t excess(const KvOptions& kv) const {
        const uint64_t total = setup_.plan(context_size_, kv).total();
        return total <= available_ ? 0 : (total - available_) / context_size_ + 1;
    }

  private:
    const Setup& setup_;
    const uint32_t context_size_;
    uint64_t available_, bytes_;
};

// The best mix that fits the budget and, if that follows from the memory, the memory.
// The budget gets smaller in each round, by at least one byte, and search.check() fails below the smallest cache: so the loop
// ends.
KvOptions fitting_mix(const TypeSearch& search, const MemoryBudget* memory, uint64_t& budget) {
    for (;;) {
        search.check(budget);
        const KvOptions mix = search.best_mix(budget).value();
        const uint64_t excess = memory ? memory->excess(mix) : 0;
        if (excess == 0) return mix;
        budget = search.bytes(mix) - std::min(search.bytes(mix), excess);
    }
}

// Makes a table of the layers that store keys and values.
std::string layer_table(const TypeSearch& search, const KvOptions& kv, const Config& config) {
    std::vector<std::vector<std::string>> rows{{"layer", "keys", "KL from keys", "values", "KL from values"}};
    for (uint32_t layer = 0; layer < config.num_hidden_layers; layer++) {
        if (config.is_recurrent(layer)) continue;
        const KvTypes types = kv.at(layer, config.num_hidden_layers);
        const auto cost = [&](KvSide side, KvType type) { return search.sensitivities().predicted(layer, side, type); };
        rows.push_back({std::to_string(layer), name(types.k), fmt::format("{:.1e}", cost(KvSide::key, types.k)), name(types.v),
                        fmt::format("{:.1e}", cost(KvSide::value, types.v))});
    }
    return "\n" + markdown(rows, 5);
}

std::vector<std::string> row(const TypeSearch& search, const Config& config, const KvOptions& kv, const Summary& measured) {
    const double ratio = double(kv_bytes_per_token(config, KvOptions{KvType::f16, KvType::f16})) / double(search.bytes(kv));
    return {describe(kv),
            std::to_string(search.bytes(kv)),
            fmt::format("{:.2f}", ratio),
            with_error({search.sensitivities().predicted(kv), 0}),
            with_error(measured.kl),
            with_error({measured.same_top.value * 100, measured.same_top.error * 100})};
}

void write_file(const std::string& path, const KvOptions& kv, uint32_t layers, const std::string& about) {
    const std::string text = kv_file_text(kv, layers, about);
    ByteOutput file(path, ByteInput("-"));
    file.write({reinterpret_cast<const uint8_t*>(text.data()), text.size()});
    file.commit();
}

void require_usage(const MixArguments& a) {
    if (a.model.kv.names_types())
        throw UsageError("mix chooses the cache types itself: leave --kv, -ctk, -ctv and --kv-layers out, and name the "
                         "candidates with --types");
    if (a.budget != 0 && a.model.context_size)
        throw UsageError("--budget and -c are two ways to give the size: leave one of them out");
    if (a.budget == 0 && !a.model.context_size)
        throw UsageError(
            "mix needs a size: give either --budget, or -c for a context that must fit in the memory or in --memory");
    if (a.budget != 0 && a.model.memory_limit_bytes != 0)
        throw UsageError("--memory belongs to -c, not to --budget: leave one of them out");
    if (a.model.context_size == 0u) throw UsageError("-c must be at least 1, the tokens that must fit in the memory");
}

// The search needs the memory of several caches of a chunk, and the result that of one with the whole context. So two plans are
// made: the setup's for the search, and MemoryBudget's for the result.
int run(const MixArguments& arguments) {
    require_usage(arguments);
    Console console = arguments.console.console();
    ModelArguments measured = arguments.model; // the limit is for the resulting cache, not for the search
    measured.context_size = arguments.search.chunk_tokens;
    measured.memory_limit_bytes = 0;
    measured.alone = !arguments.search.shard.text.empty();
    Setup setup = set_up(measured, console);
    if (setup.options.kv.window >= arguments.search.chunk_tokens)
        throw UsageError(
            fmt::format("a window of {} tokens has all of a chunk of {} in fp16, so that no type costs anything: give a "
                        "smaller --kv-window or a larger --chunk-tokens",
                        setup.options.kv.window, arguments.search.chunk_tokens));
    TypeSearchOptions options = arguments.search;
    options.types = parse_types(arguments.types);
    if (arguments.types == default_types && setup.options.kv.rotation != RotationKind::wht)
        std::erase_if(options.types, [](KvType type) { return is_unequal(type); }); // these need its butterflies
    const uint32_t layers = setup.model.config.num_hidden_layers;
    std::optional<MemoryBudget> memory;
    if (arguments.budget == 0) memory.emplace(setup, *arguments.model.context_size, arguments.model.memory_limit_bytes >> 20);
    TypeSearch search(options, setup, console);
    catch_interrupts();
    if (!options.shard.shard().is_all()) return search.measure_shard();
    uint64_t budget = memory ? memory->bytes() : arguments.budget;
    search.check(budget);
    const auto stopped = [&] {
        console.say(search.where_stopped());
        return 130;
    };
    if (!search.measure_probes()) return stopped();
    std::vector<KvOptions> rivals{fitting_mix(search, memory ? &*memory : nullptr, budget)};
    for (const KvOptions& kv : search.rivals(budget))
        if (describe(kv) != describe(rivals[0])) rivals.push_back(kv);
    const std::vector<Summary> found = search.measure_caches(rivals);
    if (found.empty()) return stopped();
    const auto best = size_t(std::ranges::min_element(found, {}, [](const Summary& s) { return s.kl.value; }) - found.begin());
    const std::string title =
        fmt::format("{}, at most {} bytes per token; {}", setup.model.name, budget, search.text_description());
    std::vector<std::vector<std::string>> rows{
        {"cache", "bytes per token", "x smaller than f16", "KL, nats, predicted", "KL, nats, measured", "same top, %"}};
    for (size_t i = 0; i < rivals.size(); i++) rows.push_back(row(search, setup.model.config, rivals[i], found[i]));
    std::string text = measurement_heading(setup, search.text()) + "\n" + title + "\n\n" + markdown(rows, 1);
    text += layer_table(search, rivals[best], setup.model.config);
    write_file(arguments.output, rivals[best], layers,
               fmt::format("{}; KL {:.3g} against {} on {}", title, found[best].kl.value, name(TypeSearch::base_type),
                           setup.device_name));
    write_text(text + fmt::format("\nwrote {} to {}: use it with --kv {}\n", describe(rivals[best]), printable(arguments.output),
                                  printable(arguments.output)));
    return 0;
}

} // namespace

void add_mix(ArgumentParser& app, Action& action) {
    const auto flags = [](ArgumentParser& command, MixArguments& a) {
        add_option(command, "-f,--file", a.search.file, "FILE", "text to measure on; default: a short built-in text");
        add_option(command, "-o,--output", a.output, "FILE.kv.json", "file to write: the cache types of each layer, for --kv")
            .required()
            .check(parsed_by([](const std::string& path) {
                if (!is_kv_file(path)) fail("its name must end in .json, or --kv would not recognise it as a file");
            }));
        add_option(command, "--budget", a.budget, "BYTES",
                   "size limit of the cache in bytes per token; or give -c, with or without --memory")
            .check(number(1, 1e12));
        add_option(command, "--types", a.types, "LIST", fmt::format("cache types to choose from; default: {}", default_types))
            .check(cache_types(parse_types));
        add_option(command, "--chunks", a.search.chunks, "N",
                   "number of chunks to measure on, and of others to check on; default: 2")
            .check(number(1, 1 << 20));
        add_option(command, "--chunk-tokens", a.search.chunk_tokens, "N", "tokens of each chunk; default: 512")
            .check(number(16, 1 << 20));
        add_flags(command, a.search.shard,
                  "keep the measurements in this file of JSON lines, and resume from it if it exists, with any budget");
        add_flags(command, a.model);
        hide_flags(command, {"--kv", "--cache-type-k", "--cache-type-v", "--kv-layers"});
        add_flags(command, a.console);
    };
    add_command<MixArguments>(app, action, "mix", "Choose the best cache types of each layer within a size limit", flags, run);
}

} // namespace tq
