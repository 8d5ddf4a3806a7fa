// The measurements of `mix`. Each probe changes one layer's keys or values; several caches are measured in one pass over the
// reference, as many as the memory holds, at most 8. Every result is a line of the log, without budget and list of types in its
// identity, so another budget costs no new probes. The final caches are measured on chunks that the probes have not seen if the
// text has so many.
#include "tools/tq-run/measure/type_search.h"
#include "base/error.h"
#include "base/interrupt.h"
#include "model/files/kv_file.h"
#include "tools/tq-run/build.h"
#include "tools/tq-run/cli/table.h"
#include "tools/tq-run/engine/setup.h"
#include <algorithm>
#include <iterator>

namespace tq {

using nlohmann::json;
using quality::CacheCost, quality::CacheCosts, quality::Probe, quality::Summary;

constexpr size_t max_at_once = 8; // caches in one pass over the reference: more save little time

TypeSearch::TypeSearch(const TypeSearchOptions& a, Setup& setup, Console& console)
    : setup_(setup), console_(console), chunks_(a.chunks), chunk_tokens_(a.chunk_tokens), shard_(a.shard),
      text_(read_measured_text(a.file, setup.model.tokenizer, a.chunk_tokens)), base_(uniform({base_type, base_type})),
      sensitivities_(base_, setup.model.config.num_hidden_layers, a.types, setup.model.config.recurrent_layers),
      probes_(sensitivities_.missing()), log_(shard_, identity(a), false) {
    read_log();
}

KvOptions TypeSearch::uniform(KvTypes types) const {
    KvOptions kv = setup_.options.kv;
    kv.set(types);
    return kv;
}

// Identifies the measurements. Budget and types are not in it: the measurements serve them all.
// The schema has the former name of `mix`, so that logs of earlier versions go on.
json TypeSearch::identity(const TypeSearchOptions& a) const {
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

// A log is a file that may be cut, edited or from another program. A part of another kind is skipped (the checks of whole caches
// are in the same log); a number that no measurement gives is an error, since it would decide the mix silently.
void TypeSearch::read_log() try {
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

void TypeSearch::check(uint64_t budget) const {
    std::vector<uint64_t> sizes;
    for (const KvType k : sensitivities_.types(KvSide::key))
        for (const KvType v : sensitivities_.types(KvSide::value)) sizes.push_back(bytes(uniform({k, v})));
    const auto [min, max] = std::ranges::minmax(sizes);
    if (budget < min)
        fail("{} bytes per token are too few: the smallest cache of these types takes {}; --types can name smaller ones", budget,
             min);
    if (budget > max)
        fail("{} bytes per token leave nothing to choose, as the largest cache of these types takes {}", budget, max);
}

quality::KeepGoing TypeSearch::watched(const std::string& status, const quality::Chunks& chunks, const TimeLeft& left,
                                       size_t before, size_t caches, size_t total) {
    return [=, this, &left, all = chunks.ids.size()](uint32_t done) {
        const double measured = double(before) + double(caches) * done / double(all);
        console_.status(fmt::format("{} of {} caches measured{}; {}: {} of {} tokens", before, total,
                                    left.after(measured, double(total)), status, done, all));
        return !interrupted();
    };
}

std::string TypeSearch::where_stopped() const {
    const uint32_t layers = setup_.model.config.attention_layers();
    const auto measured = [](KvType type) { return type != base_type; };
    const auto count = [&](KvSide side) { return size_t(std::ranges::count_if(sensitivities_.types(side), measured)); };
    const size_t all = layers * (count(KvSide::key) + count(KvSide::value)), missing = sensitivities_.missing().size();
    return fmt::format("stopped: {} of {} caches were measured, and no file is written; {}", all - std::min(all, missing), all,
                       shard_.log.empty() ? "with --log FILE the same command could continue from there"
                                          : "the same command continues from there");
}

// Returns how many caches the memory holds beside the reference, at most max_at_once.
size_t TypeSearch::caches_at_once() const {
    std::vector<KvOptions> caches(2, base_);
    check_memory(setup_, caches);
    while (caches.size() <= max_at_once) {
        caches.push_back(base_);
        if (!plan_together(setup_, caches).fits()) return caches.size() - 2;
    }
    return max_at_once;
}

// The model is loaded only when something must be measured: if the log has everything, `mix` with another budget takes no time.
// The reference's logits depend on the chunks, so there is one CacheCosts for a first chunk, and the old one goes before the new
// one is made.
CacheCosts& TypeSearch::costs(size_t first_chunk) {
    if (!model_) {
        check_memory(setup_, std::array{base_, base_});
        model_ = std::make_unique<SharedModel>(setup_, console_);
    }
    if (costs_ && costs_->first == first_chunk) return costs_->second;
    costs_.reset(); // the memory of its cache first
    costs_.emplace(first_chunk, CacheCosts([this](const KvOptions& kv) { return model_->forward(kv); }, base_,
                                           quality::cut(text_.ids, chunk_tokens_, first_chunk, chunks_)));
    return costs_->second;
}

// Probes go in their order, a few caches in each pass over the reference, and each is noted after its pass. So an interrupt loses
// one pass at most. Returns false when interrupted.
bool TypeSearch::measure(std::span<const Probe> probes) {
    const std::vector<Probe> unknown = sensitivities_.missing();
    std::vector<Probe> missing;
    std::ranges::copy_if(probes, std::back_inserter(missing),
                         [&](const Probe& probe) { return std::ranges::find(unknown, probe) != unknown.end(); });
    if (missing.empty()) return true;
    const size_t at_once = caches_at_once();
    const TimeLeft left;
    for (size_t done = 0; done < missing.size();) {
        CacheCosts& costs = this->costs(0);
        const std::span some = std::span(missing).subspan(done, std::min(at_once, missing.size() - done));
        std::vector<KvOptions> caches;
        for (const Probe& probe : some) caches.push_back(sensitivities_.options(probe));
        const std::string status = fmt::format("layer {} of {}", some[0].layer + 1, setup_.model.config.num_hidden_layers);
        const auto found = costs.measure(caches, watched(status, costs.chunks(), left, done, caches.size(), missing.size()));
        for (size_t i = 0; i < found.size(); i++) note(some[i], found[i].summary.kl);
        if (found.size() != some.size()) return false;
        done += some.size();
    }
    console_.clear_status();
    return true;
}

bool TypeSearch::measure_probes() { return measure(probes_); }

int TypeSearch::measure_shard() {
    const Shard shard = shard_.shard();
    std::vector<Probe> own;
    for (size_t i = 0; i < shard.size(probes_.size()); i++) own.push_back(probes_[shard.part(i)]);
    measure(own);
    console_.clear_status();
    const std::vector<Probe> missing = sensitivities_.missing();
    const auto is_missing = [&](const Probe& probe) { return std::ranges::find(missing, probe) != missing.end(); };
    return shard_.end_shard(own.size() - size_t(std::ranges::count_if(own, is_missing)), probes_.size());
}

void TypeSearch::note(const Probe& probe, const quality::Estimate& kl) {
    log_.add({{"layer", probe.layer},
              {"side", probe.side == KvSide::key ? "k" : "v"},
              {"type", name(probe.type)},
              {"kl", kl.value},
              {"kl_error", kl.error}});
    sensitivities_.set(probe, kl.value);
}

std::optional<Summary> TypeSearch::logged(const KvOptions& kv) const try {
    for (const json& part : log_.parts())
        if (part.contains("cache") && part["cache"] == json(kv_json(kv, setup_.model.config.num_hidden_layers, "")))
            return Summary{.tokens = part.at("tokens"),
                           .kl = {part.at("kl"), part.at("kl_error")},
                           .same_top = {part.at("same_top"), part.at("same_top_error")}};
    return std::nullopt;
} catch (const json::exception&) {
    fail("the log has a damaged part: delete the log");
}

// The mix was chosen by its costs on the first chunks. Measuring it on the same chunks would flatter it, so the next ones are
// used if the text has enough. Returns nothing when interrupted.
std::vector<Summary> TypeSearch::measure_caches(const std::vector<KvOptions>& caches) {
    const size_t first_chunk = text_.ids.size() / chunk_tokens_ > chunks_ ? chunks_ : 0;
    const TimeLeft left;
    std::vector<Summary> out;
    for (const KvOptions& kv : caches) {
        if (const auto known = logged(kv)) {
            out.push_back(*known);
            continue;
        }
        CacheCosts& costs = this->costs(first_chunk);
        const auto watch = watched(fmt::format("checking {}", describe(kv)), costs.chunks(), left, out.size(), 1, caches.size());
        const auto found = costs.measure({&kv, 1}, watch);
        if (found.empty()) return {};
        out.push_back(found[0].summary);
        note(kv, out.back());
    }
    console_.clear_status();
    return out;
}

void TypeSearch::note(const KvOptions& kv, const Summary& s) {
    log_.add({{"cache", kv_json(kv, setup_.model.config.num_hidden_layers, "")},
              {"tokens", s.tokens},
              {"kl", s.kl.value},
              {"kl_error", s.kl.error},
              {"same_top", s.same_top.value},
              {"same_top_error", s.same_top.error}});
}

std::optional<KvOptions> TypeSearch::best_mix(uint64_t budget) const {
    const Config& c = setup_.model.config;
    return sensitivities_.best_mix(budget, c.num_key_value_heads, c.head_dim);
}

// Returns the caches that the mix must beat: the best pair of types for all layers, and the largest single type that the budget
// allows.
std::vector<KvOptions> TypeSearch::rivals(uint64_t budget) const {
    const Config& c = setup_.model.config;
    std::vector<KvOptions> out;
    if (const auto pair = sensitivities_.best_pair(budget, c.num_key_value_heads, c.head_dim)) out.push_back(*pair);
    std::optional<KvOptions> largest;
    for (const KvType type : sensitivities_.types(KvSide::value)) { // all of these are for keys, too
        const KvOptions kv = uniform({type, type});
        if (bytes(kv) <= budget && (!largest || bytes(kv) > bytes(*largest))) largest = kv;
    }
    if (largest && (out.empty() || describe(*largest) != describe(out[0]))) out.push_back(*largest);
    return out;
}

std::string TypeSearch::text_description() const {
    const size_t whole = text_.ids.size() / chunk_tokens_;
    const size_t probed = std::min<size_t>(whole, chunks_), others = std::min<size_t>(whole - probed, chunks_);
    return fmt::format("predicted from {} chunks of {} tokens, measured on {}; the second half of each counts", probed,
                       chunk_tokens_, others == 0 ? "the same, for the text has no more" : fmt::format("{} others", others));
}

} // namespace tq
