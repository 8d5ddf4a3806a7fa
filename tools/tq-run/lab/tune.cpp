// tq-run tune: chooses types for each layer's keys and values, so that a cache of a given number of bytes costs least; measures
// them, and writes a file for --kv.
#include "base/error.h"
#include "base/interrupt.h"
#include "base/printable.h"
#include "model/files/kv_file.h"
#include "tools/quality/cache_cost.h"
#include "tools/quality/mix.h"
#include "tools/quality/run_log.h"
#include "tools/tq-run/byte_files.h"
#include "tools/tq-run/commands.h"
#include "tools/tq-run/lab/measured_text.h"
#include "tools/tq-run/shared_model.h"
#include "tools/tq-run/table.h"
#include "tools/tq-run/time_left.h"
#include <algorithm>
#include <nlohmann/json.hpp>

namespace tq {
namespace {

using nlohmann::json;
using quality::CacheCost, quality::CacheCosts, quality::Probe, quality::Sensitivities, quality::Summary;

constexpr size_t max_at_once = 8; // caches in one pass over the reference: more save little time
constexpr KvType base_type = KvType::f16;
constexpr const char* default_types = "tq2,tq2t,tq3,tq3t,tq4,tq4t,tq5,tq6,tq8,q8_0,f16";

struct TuneArguments {
    ConsoleArguments console;
    ModelArguments model;
    std::string file, types = default_types, output, log;
    uint64_t budget = 0; // bytes per token; 0: as many as the memory has room for
    uint32_t chunks = 2, chunk_tokens = 512;
};

// "a,b", each once.
std::vector<KvType> parse_types(const std::string& list) {
    std::vector<KvType> out;
    for (size_t at = 0; at <= list.size();) {
        const size_t comma = std::min(list.find(',', at), list.size());
        const KvType type = parse_kv_type(list.substr(at, comma - at));
        if (std::ranges::find(out, type) == out.end()) out.push_back(type);
        at = comma + 1;
    }
    return out;
}

// Reads the measurements in the log, and makes the missing ones.
class Tuning {
  public:
    Tuning(const TuneArguments& arguments, Setup& setup, Console& console);

    uint64_t bytes(const KvOptions& kv) const { return kv_bytes_per_token(setup_.model.config, kv); }
    // Throws Error where no mix of the types has as many bytes.
    void check(uint64_t budget) const;
    bool measure_probes(); // false where it was stopped
    // The summaries in the order given, on chunks that no probe has used where the text has such; none where it was stopped.
    std::vector<Summary> measure_for_real(const std::vector<KvOptions>& caches);

    std::optional<KvOptions> best_mix(uint64_t budget) const;
    std::vector<KvOptions> rivals(uint64_t budget) const;
    const Sensitivities& sensitivities() const { return sensitivities_; }
    const MeasuredText& text() const { return text_; }
    // A message when it was stopped: how far it came, and how to continue.
    std::string where_stopped() const;
    std::string text_description() const;

  private:
    json what(const TuneArguments& arguments) const;
    KvOptions uniform(KvType type) const;
    size_t caches_at_once() const;
    std::optional<Summary> logged(const KvOptions& kv) const;
    CacheCosts costs(size_t first);
    // Shows the status of `caches` more caches, after `before` of `total`.
    quality::KeepGoing watched(const std::string& status, const quality::Chunks& chunks, const TimeLeft& left, size_t before,
                               size_t caches, size_t total);
    void read_log();

    Setup& setup_;
    Console& console_;
    const uint32_t chunks_, chunk_tokens_;
    const std::string log_path_;
    const MeasuredText text_;
    const KvOptions base_;
    Sensitivities sensitivities_;
    quality::RunLog log_;
    std::unique_ptr<SharedModel> model_; // loaded when the first measurement needs it
};

Tuning::Tuning(const TuneArguments& a, Setup& setup, Console& console)
    : setup_(setup), console_(console), chunks_(a.chunks), chunk_tokens_(a.chunk_tokens), log_path_(a.log),
      text_(read_measured_text(a.file, setup.model.tokenizer, a.chunk_tokens)), base_(uniform(base_type)),
      sensitivities_(base_, setup.model.config.num_hidden_layers, parse_types(a.types)), log_(a.log, what(a)) {
    read_log();
}

KvOptions Tuning::uniform(KvType type) const {
    KvOptions kv = setup_.options.kv;
    kv.set({type, type});
    return kv;
}

// Budget and types are not in it: the measurements serve them all.
json Tuning::what(const TuneArguments& a) const {
    return {{"schema", "tq-run-tune"},
            {"version", 1},
            {"model", setup_.model.name},
            {"weight_bytes", setup_.model.weights.bytes()},
            {"layers", setup_.model.config.num_hidden_layers},
            {"text_sha", text_.hash},
            {"text_tokens", text_.ids.size()},
            {"chunks", a.chunks},
            {"chunk_tokens", a.chunk_tokens},
            {"reference", describe(base_)},
            {"device", setup_.device_name},
            {"build", release_description()}};
}

void Tuning::read_log() try {
    for (const json& part : log_.parts()) {
        if (!part.contains("layer")) continue;
        const double kl = part.at("kl");
        if (!(kl >= 0 && kl < 1e9)) fail("the log has a KL divergence of {}, so it is damaged: delete it", kl);
        sensitivities_.set({part.at("layer"), part.at("side") == "k" ? KvSide::key : KvSide::value,
                            parse_kv_type(part.at("type").get<std::string>())},
                           kl);
    }
} catch (const json::exception&) {
    fail("the log has a damaged part: delete the log");
}

void Tuning::check(uint64_t budget) const {
    std::vector<uint64_t> sizes;
    for (const KvType type : sensitivities_.types()) sizes.push_back(bytes(uniform(type)));
    const auto [least, most] = std::ranges::minmax(sizes);
    if (budget < least)
        fail("{} bytes per token are too few: the smallest cache of these types takes {}; --types can name smaller ones", budget,
             least);
    if (budget > most)
        fail("{} bytes per token leave nothing to choose, as the largest cache of these types takes {}", budget, most);
}

quality::KeepGoing Tuning::watched(const std::string& status, const quality::Chunks& chunks, const TimeLeft& left, size_t before,
                                   size_t caches, size_t total) {
    return [=, this, &left, all = chunks.ids.size()](uint32_t done) {
        const double measured = double(before) + double(caches) * done / double(all);
        console_.status(fmt::format("{} of {} caches measured{}; {}: {} of {} tokens", before, total,
                                    left.after(measured, double(total)), status, done, all));
        return !interrupted();
    };
}

std::string Tuning::where_stopped() const {
    const uint32_t layers = setup_.model.config.num_hidden_layers;
    const auto& types = sensitivities_.types();
    const auto measured_types = size_t(std::ranges::count_if(types, [](KvType type) { return type != base_type; }));
    const size_t all = layers * 2 * measured_types, missing = sensitivities_.missing().size();
    return fmt::format("stopped: {} of {} caches were measured, and no file is written; {}", all - std::min(all, missing), all,
                       log_path_.empty() ? "with --log FILE the same command could continue from there"
                                         : "the same command continues from there");
}

// As many caches as the memory holds beside the reference.
size_t Tuning::caches_at_once() const {
    std::vector<KvOptions> caches(2, base_);
    check_memory(setup_, caches);
    while (caches.size() <= max_at_once) {
        caches.push_back(base_);
        if (!plan_together(setup_, caches).fits()) return caches.size() - 2;
    }
    return max_at_once;
}

CacheCosts Tuning::costs(size_t first) {
    if (!model_) {
        check_memory(setup_, std::array{base_, base_});
        model_ = std::make_unique<SharedModel>(setup_, console_);
    }
    return {[this](const KvOptions& kv) { return model_->forward(kv); }, base_,
            quality::cut(text_.ids, chunk_tokens_, first, chunks_)};
}

bool Tuning::measure_probes() {
    const std::vector<Probe> missing = sensitivities_.missing();
    if (missing.empty()) return true;
    const size_t at_once = caches_at_once();
    CacheCosts costs = this->costs(0);
    const TimeLeft left;
    for (size_t first = 0; first < missing.size(); first += at_once) {
        const std::span probes = std::span(missing).subspan(first, std::min(at_once, missing.size() - first));
        std::vector<KvOptions> caches;
        for (const Probe& probe : probes) caches.push_back(sensitivities_.options(probe));
        const std::string status = fmt::format("layer {} of {}", probes[0].layer + 1, setup_.model.config.num_hidden_layers);
        const std::vector<CacheCost> found =
            costs.measure(caches, watched(status, costs.chunks(), left, first, probes.size(), missing.size()));
        if (found.empty()) return false;
        for (size_t i = 0; i < found.size(); i++) {
            const Probe& probe = probes[i];
            const quality::Estimate kl = found[i].summary.kl;
            log_.add({{"layer", probe.layer},
                      {"side", probe.side == KvSide::key ? "k" : "v"},
                      {"type", name(probe.type)},
                      {"kl", kl.value},
                      {"kl_error", kl.error}});
            sensitivities_.set(probe, kl.value);
        }
    }
    console_.clear_status();
    return true;
}

std::optional<Summary> Tuning::logged(const KvOptions& kv) const try {
    for (const json& part : log_.parts())
        if (part.contains("cache") && part["cache"] == json(kv_json(kv, setup_.model.config.num_hidden_layers, "")))
            return Summary{.tokens = part.at("tokens"),
                           .kl = {part.at("kl"), part.at("kl_error")},
                           .same_top = {part.at("same_top"), part.at("same_top_error")}};
    return std::nullopt;
} catch (const json::exception&) {
    fail("the log has a damaged part: delete the log");
}

std::vector<Summary> Tuning::measure_for_real(const std::vector<KvOptions>& caches) {
    std::vector<Summary> out;
    std::optional<CacheCosts> costs;
    const TimeLeft left;
    for (size_t i = 0; i < caches.size(); i++) {
        if (const auto known = logged(caches[i])) {
            out.push_back(*known);
            continue;
        }
        if (!costs) costs.emplace(this->costs(text_.ids.size() / chunk_tokens_ > chunks_ ? chunks_ : 0));
        const std::string status = fmt::format("checking {}", describe(caches[i]));
        const std::vector<CacheCost> found =
            costs->measure({&caches[i], 1}, watched(status, costs->chunks(), left, i, 1, caches.size()));
        if (found.empty()) return {};
        const Summary& s = out.emplace_back(found[0].summary);
        log_.add({{"cache", kv_json(caches[i], setup_.model.config.num_hidden_layers, "")},
                  {"tokens", s.tokens},
                  {"kl", s.kl.value},
                  {"kl_error", s.kl.error},
                  {"same_top", s.same_top.value},
                  {"same_top_error", s.same_top.error}});
    }
    console_.clear_status();
    return out;
}

std::optional<KvOptions> Tuning::best_mix(uint64_t budget) const {
    const Config& c = setup_.model.config;
    return sensitivities_.best_mix(budget, c.num_key_value_heads, c.head_dim);
}

// Caches without a mix: the best pair of types for all layers, and the largest single type.
std::vector<KvOptions> Tuning::rivals(uint64_t budget) const {
    const Config& c = setup_.model.config;
    std::vector<KvOptions> out;
    if (const auto pair = sensitivities_.best_pair(budget, c.num_key_value_heads, c.head_dim)) out.push_back(*pair);
    std::optional<KvOptions> largest;
    for (const KvType type : sensitivities_.types()) {
        const KvOptions kv = uniform(type);
        if (bytes(kv) <= budget && (!largest || bytes(kv) > bytes(*largest))) largest = kv;
    }
    if (largest && (out.empty() || describe(*largest) != describe(out[0]))) out.push_back(*largest);
    return out;
}

std::string Tuning::text_description() const {
    const size_t whole = text_.ids.size() / chunk_tokens_;
    const size_t probed = std::min<size_t>(whole, chunks_), others = std::min<size_t>(whole - probed, chunks_);
    return fmt::format("predicted from {} chunks of {} tokens, measured on {}; the second half of each counts", probed,
                       chunk_tokens_, others == 0 ? "the same, for the text has no more" : fmt::format("{} others", others));
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
        bytes_ = (available_ - taken) / ForwardOptions{.context_size = context_size}.last_capacity();
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

// The best mix that fits the budget and, where that follows from the memory, the memory.
KvOptions fitting_mix(const Tuning& tuning, const MemoryBudget* memory, uint64_t& budget) {
    for (;;) {
        tuning.check(budget);
        const KvOptions mix = tuning.best_mix(budget).value();
        const uint64_t excess = memory ? memory->excess(mix) : 0;
        if (excess == 0) return mix;
        budget = tuning.bytes(mix) - std::min(tuning.bytes(mix), excess);
    }
}

std::string layer_table(const Tuning& tuning, const KvOptions& kv, uint32_t layers) {
    std::vector<std::vector<std::string>> rows{{"layer", "keys", "KL from keys", "values", "KL from values"}};
    for (uint32_t layer = 0; layer < layers; layer++) {
        const KvTypes types = kv.at(layer, layers);
        const auto cost = [&](KvSide side, KvType type) { return tuning.sensitivities().predicted(layer, side, type); };
        rows.push_back({std::to_string(layer), name(types.k), fmt::format("{:.1e}", cost(KvSide::key, types.k)), name(types.v),
                        fmt::format("{:.1e}", cost(KvSide::value, types.v))});
    }
    return "\n" + markdown(rows, 5);
}

std::vector<std::string> row(const Tuning& tuning, const Config& config, const KvOptions& kv, const Summary& measured) {
    const double ratio = double(kv_bytes_per_token(config, KvOptions{KvType::f16, KvType::f16})) / double(tuning.bytes(kv));
    return {describe(kv),
            std::to_string(tuning.bytes(kv)),
            fmt::format("{:.2f}", ratio),
            with_error({tuning.sensitivities().predicted(kv), 0}),
            with_error(measured.kl),
            with_error({measured.same_top.value * 100, measured.same_top.error * 100})};
}

void write_file(const std::string& path, const KvOptions& kv, uint32_t layers, const std::string& about) {
    const std::string text = kv_file_text(kv, layers, about);
    ByteOutput file(path, ByteInput("-"));
    file.write({reinterpret_cast<const uint8_t*>(text.data()), text.size()});
    file.commit();
}

void require_usage(const TuneArguments& a) {
    if (a.model.kv.names_types())
        throw UsageError("tune chooses the cache types itself: leave --kv, -ctk, -ctv and --kv-layers out, and name the "
                         "candidates with --types");
    if ((a.budget != 0) == a.model.context_size.has_value())
        throw UsageError(
            "tune needs a size: give either --budget, or -c for a context that must fit in the memory or in --memory");
    if (a.budget != 0 && a.model.memory_limit_bytes != 0)
        throw UsageError("--memory belongs to -c, not to --budget: leave one of them out");
    if (a.model.context_size == 0u) throw UsageError("-c must be at least 1, the tokens that must fit in the memory");
}

int run(const TuneArguments& arguments) {
    require_usage(arguments);
    Console console = arguments.console.console();
    ModelArguments measured = arguments.model; // the limit is for the resulting cache, not for the search
    measured.context_size = arguments.chunk_tokens;
    measured.memory_limit_bytes = 0;
    Setup setup = set_up(measured, console);
    const uint32_t layers = setup.model.config.num_hidden_layers;
    std::optional<MemoryBudget> memory;
    if (arguments.budget == 0) memory.emplace(setup, *arguments.model.context_size, arguments.model.memory_limit_bytes >> 20);
    Tuning tuning(arguments, setup, console);
    uint64_t budget = memory ? memory->bytes() : arguments.budget;
    tuning.check(budget);
    catch_interrupts();
    const auto stopped = [&] {
        console.clear_status();
        write_error(fmt::format("tq-run: {}\n", tuning.where_stopped()));
        return 130;
    };
    if (!tuning.measure_probes()) return stopped();
    std::vector<KvOptions> rivals{fitting_mix(tuning, memory ? &*memory : nullptr, budget)};
    for (const KvOptions& kv : tuning.rivals(budget))
        if (describe(kv) != describe(rivals[0])) rivals.push_back(kv);
    const std::vector<Summary> found = tuning.measure_for_real(rivals);
    if (found.empty()) return stopped();
    const auto best = size_t(std::ranges::min_element(found, {}, [](const Summary& s) { return s.kl.value; }) - found.begin());
    const std::string title =
        fmt::format("{}, at most {} bytes per token; {}", setup.model.name, budget, tuning.text_description());
    std::vector<std::vector<std::string>> rows{
        {"cache", "bytes per token", "x smaller than f16", "KL, nats, predicted", "KL, nats, measured", "same top, %"}};
    for (size_t i = 0; i < rivals.size(); i++) rows.push_back(row(tuning, setup.model.config, rivals[i], found[i]));
    std::string text = measurement_heading(setup, tuning.text()) + "\n" + title + "\n\n" + markdown(rows, 1);
    text += layer_table(tuning, rivals[best], layers);
    write_file(arguments.output, rivals[best], layers,
               fmt::format("{}; KL {:.3g} against {} on {}", title, found[best].kl.value, name(base_type), setup.device_name));
    write_output(text + fmt::format("\nwrote {} to {}: use it with --kv {}\n", describe(rivals[best]),
                                    printable(arguments.output), printable(arguments.output)));
    return 0;
}

} // namespace

void add_tune(ArgumentParser& app, Action& action) {
    const auto flags = [](ArgumentParser& command, TuneArguments& a) {
        const auto add = [&](const char* name, auto& value, const std::string& help, const char* type) {
            return command.add_option(name, value, help).option_text(type);
        };
        add("-f,--file", a.file, "text to measure on; default: a built-in text of some 1000 tokens", "FILE");
        add("-o,--output", a.output, "file to write: the cache types of each layer, for --kv", "FILE.kv.json")
            .required()
            .check(parsed_by([](const std::string& path) {
                if (!is_kv_file(path)) fail("its name must end in .json, or --kv would not recognise it as a file");
            }));
        add("--budget", a.budget, "size limit of the cache in bytes per token; or give -c, with or without --memory", "BYTES")
            .check(number(1, 1e12));
        add("--types", a.types, fmt::format("cache types to choose from; default: {}", default_types), "LIST")
            .check(parsed_by(parse_types));
        add("--chunks", a.chunks, "number of chunks to measure on, and of others to check on; default: 2", "N")
            .check(number(1, 1 << 20));
        add("--chunk-tokens", a.chunk_tokens, "tokens of each chunk; default: 512", "N").check(number(16, 1 << 20));
        add("--log", a.log, "keep the measurements in this file of JSON lines, and resume from it if it exists, with any budget",
            "FILE");
        add_flags(command, a.model);
        add_flags(command, a.console);
    };
    add_command<TuneArguments>(app, action, "tune", "Choose the best cache types of each layer within a size limit", flags, run);
}

} // namespace tq
