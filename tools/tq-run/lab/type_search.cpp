#include "tools/tq-run/lab/type_search.h"
#include "base/error.h"
#include "base/interrupt.h"
#include "base/path_text.h"
#include "model/files/kv_file.h"
#include "tools/tq-run/table.h"
#include <algorithm>

namespace tq {

using nlohmann::json;
using quality::CacheCost, quality::CacheCosts, quality::Probe, quality::Summary;

constexpr size_t max_at_once = 8; // caches in one pass over the reference: more save little time

TypeSearch::TypeSearch(const TypeSearchOptions& a, Setup& setup, Console& console, MeasurementRanks& ranks)
    : setup_(setup), console_(console), ranks_(ranks), chunks_(a.chunks), chunk_tokens_(a.chunk_tokens), log_path_(a.log),
      text_(read_measured_text(a.file, setup.model.tokenizer, a.chunk_tokens)), base_(uniform(base_type)),
      sensitivities_(base_, setup.model.config.num_hidden_layers, a.types),
      log_(utf8_path(ranks.is_first() ? a.log : ""), agreed_identity(a)) {
    read_log();
}

void TypeSearch::serve() {
    const Watch watch = [](const quality::Chunks&, size_t, size_t) { return [](uint32_t) { return !interrupted(); }; };
    ranks_.measure(0, 0, [&](uint32_t, MessageReader& order) { return measure(order, watch); }, {});
}

KvOptions TypeSearch::uniform(KvType type) const {
    KvOptions kv = setup_.options.kv;
    kv.set({type, type});
    return kv;
}

// Identifies the measurements. Budget and types are not in it: the measurements serve them all.
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

// After it the names of all devices are known.
json TypeSearch::agreed_identity(const TypeSearchOptions& a) {
    ranks_.agree(setup_, {{"text", text_.hash}, {"chunks", fmt::format("{} of {} tokens", a.chunks, a.chunk_tokens)}});
    return identity(a);
}

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
    for (const KvType type : sensitivities_.types()) sizes.push_back(bytes(uniform(type)));
    const auto [least, most] = std::ranges::minmax(sizes);
    if (budget < least)
        fail("{} bytes per token are too few: the smallest cache of these types takes {}; --types can name smaller ones", budget,
             least);
    if (budget > most)
        fail("{} bytes per token leave nothing to choose, as the largest cache of these types takes {}", budget, most);
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
    const uint32_t layers = setup_.model.config.num_hidden_layers;
    const auto& types = sensitivities_.types();
    const auto measured_types = size_t(std::ranges::count_if(types, [](KvType type) { return type != base_type; }));
    const size_t all = layers * 2 * measured_types, missing = sensitivities_.missing().size();
    return fmt::format("stopped: {} of {} caches were measured, and no file is written; {}", all - std::min(all, missing), all,
                       log_path_.empty() ? "with --log FILE the same command could continue from there"
                                         : "the same command continues from there");
}

// As many caches as the memory holds beside the reference.
size_t TypeSearch::caches_at_once() const {
    std::vector<KvOptions> caches(2, base_);
    check_memory(setup_, caches);
    while (caches.size() <= max_at_once) {
        caches.push_back(base_);
        if (!plan_together(setup_, caches).fits()) return caches.size() - 2;
    }
    return max_at_once;
}

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

// Caches that differ from the reference in their types alone, on the chunks from one on.
void TypeSearch::write_order(MessageWriter& order, size_t first_chunk, std::span<const KvOptions> caches) const {
    const uint32_t layers = setup_.model.config.num_hidden_layers;
    order.add(uint64_t(first_chunk));
    order.add(uint32_t(caches.size()));
    for (const KvOptions& kv : caches) {
        std::vector<KvTypes> types;
        for (uint32_t layer = 0; layer < layers; layer++) types.push_back(kv.at(layer, layers));
        order.add_list(std::span<const KvTypes>(types));
    }
}

std::vector<KvOptions> TypeSearch::read_caches(MessageReader& order) const {
    std::vector<KvTypes> types(setup_.model.config.num_hidden_layers);
    std::vector<KvOptions> caches(order.get<uint32_t>(), base_);
    for (KvOptions& kv : caches) {
        order.get_list(std::span(types));
        for (int layer = 0; layer < int(types.size()); layer++) kv.layers.push_back({layer, layer, types[size_t(layer)]});
    }
    return caches;
}

// Returns the summaries of the caches, in their order; nothing where it was stopped.
std::optional<std::vector<std::byte>> TypeSearch::measure(MessageReader& order, const Watch& watch) {
    CacheCosts& costs = this->costs(order.get<uint64_t>());
    const std::vector<KvOptions> caches = read_caches(order);
    const size_t at_once = caches_at_once();
    std::vector<Summary> summaries;
    while (summaries.size() < caches.size()) {
        const size_t before = summaries.size(), count = std::min(at_once, caches.size() - before);
        for (const CacheCost& found :
             costs.measure(std::span(caches).subspan(before, count), watch(costs.chunks(), before, count)))
            summaries.push_back(found.summary);
        if (summaries.size() != before + count) return std::nullopt;
    }
    MessageWriter result;
    result.add_list(std::span<const Summary>(summaries));
    return std::vector(result.bytes().begin(), result.bytes().end());
}

bool TypeSearch::measure_probes() {
    const std::vector<Probe> missing = sensitivities_.missing();
    if (missing.empty()) return true;
    const size_t at_once = caches_at_once();
    const auto probes_of = [&](uint32_t part) {
        return std::span(missing).subspan(part * at_once, std::min(at_once, missing.size() - part * at_once));
    };
    const auto order = [&](uint32_t part, MessageWriter& to) {
        std::vector<KvOptions> caches;
        for (const Probe& probe : probes_of(part)) caches.push_back(sensitivities_.options(probe));
        write_order(to, 0, caches);
    };
    const TimeLeft left;
    const auto measure_part = [&](uint32_t part, MessageReader& from) {
        const std::string status =
            fmt::format("layer {} of {}", probes_of(part)[0].layer + 1, setup_.model.config.num_hidden_layers);
        return measure(from, [&](const quality::Chunks& chunks, size_t before, size_t caches) {
            return watched(status, chunks, left, part * at_once + before, caches, missing.size());
        });
    };
    size_t done = 0;
    ranks_.measure(
        0, uint32_t((missing.size() + at_once - 1) / at_once), measure_part,
        [&](uint32_t part, MessageReader from) {
            const std::vector<Summary> found = from.list<Summary>();
            for (const Probe& probe : probes_of(part)) note(probe, found.at(done++ - part * at_once).kl);
        },
        order);
    console_.clear_status();
    return done == missing.size();
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

std::vector<Summary> TypeSearch::measure_caches(const std::vector<KvOptions>& caches) {
    std::vector<Summary> out(caches.size());
    std::vector<size_t> unknown;
    for (size_t i = 0; i < caches.size(); i++)
        if (const auto known = logged(caches[i]))
            out[i] = *known;
        else
            unknown.push_back(i);
    const size_t first_chunk = text_.ids.size() / chunk_tokens_ > chunks_ ? chunks_ : 0;
    const TimeLeft left;
    const auto measure_part = [&](uint32_t part, MessageReader& from) {
        return measure(from, [&](const quality::Chunks& chunks, size_t, size_t) {
            return watched(fmt::format("checking {}", describe(caches[unknown[part]])), chunks, left, part, 1, unknown.size());
        });
    };
    size_t done = 0;
    const auto take = [&](uint32_t part, MessageReader from) {
        note(caches[unknown[part]], out[unknown[part]] = from.list<Summary>().at(0));
        done++;
    };
    ranks_.measure(0, uint32_t(unknown.size()), measure_part, take, [&](uint32_t part, MessageWriter& order) {
        write_order(order, first_chunk, {&caches[unknown[part]], 1});
    });
    console_.clear_status();
    return done == unknown.size() ? out : std::vector<Summary>();
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

std::vector<KvOptions> TypeSearch::rivals(uint64_t budget) const {
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

std::string TypeSearch::text_description() const {
    const size_t whole = text_.ids.size() / chunk_tokens_;
    const size_t probed = std::min<size_t>(whole, chunks_), others = std::min<size_t>(whole - probed, chunks_);
    return fmt::format("predicted from {} chunks of {} tokens, measured on {}; the second half of each counts", probed,
                       chunk_tokens_, others == 0 ? "the same, for the text has no more" : fmt::format("{} others", others));
}

} // namespace tq
