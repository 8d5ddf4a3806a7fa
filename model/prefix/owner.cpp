// The owner of pages. A page is of use only to a run that would store the same bytes: the same weights, positions, cache
// types, rotation, scale rule and conditioning, and, for equal bits, the same computation. Each is a text, so that a reader can
// say which of them differs; the name of the owner is a hash of all texts with their lengths.
// The texts say what is computed, not which flag asked for it: two ways of asking for one thing must give one owner
// (conditioning_text()). The model's name alone is not part of the name, as the same weights have many names.
#include "model/prefix/owner.h"
#include "base/checksum.h"
#include "base/ensure.h"
#include "base/printable.h"
#include <algorithm>
#include <fmt/ranges.h>

namespace tq {
namespace {

constexpr int page_format_version = 6; // of page_file.h, page_name.h, and of the codes and scales of every cache type

std::string rope_text(const Config& c) {
    const RopeScaling& r = c.rope_scaling;
    const std::string factors =
        c.rope_factors.empty() ? "" : fmt::format(", factors {:016x}", checksum(std::as_bytes(std::span(c.rope_factors))));
    return fmt::format("{} x{} of {}, attn {}, beta {} {}, theta {}{}", name(r.type), r.factor, r.original_context_length,
                       r.attn_factor, r.beta_fast, r.beta_slow, c.rope_theta, factors);
}

std::string types_text(const CacheOwner& owner) {
    std::vector<std::string> all;
    for (uint32_t layer = 0; layer < owner.config.num_hidden_layers; layer++) {
        const KvTypes types = owner.kv.at(layer, owner.config.num_hidden_layers);
        all.push_back(fmt::format("{}/{}", name(types.k), name(types.v)));
    }
    return fmt::format("{}", fmt::join(all, " "));
}

// Returns the checksum of a calibration.
std::string sum_of(const KeyConditioning& by) {
    ENSURE(by.calibration != nullptr, "{} was not read", by.file);
    std::vector<float> all = by.calibration->scales;
    all.insert(all.end(), by.calibration->means.begin(), by.calibration->means.end());
    return fmt::format("{:016x}", checksum(std::as_bytes(std::span(all))));
}

std::string kind_of(const CacheOwner& owner, uint32_t layer) {
    const KeyConditioning by = owner.kv.conditioning_of(layer, owner.config.num_hidden_layers);
    if (by.kind == KeyConditioning::Kind::measured) return "measured";
    return by.kind == KeyConditioning::Kind::norms && !owner.config.head_norm_eps() ? "weights" : describe(by);
}

std::string conditioning_text(const CacheOwner& owner) {
    std::vector<std::string> all;
    for (uint32_t layer = 0, count = owner.config.num_hidden_layers; layer < count; layer++)
        all.push_back(kind_of(owner, layer) + (owner.kv.scales_values(layer, count) ? "+values" : ""));
    const bool same = std::ranges::count(all, all[0]) == std::ptrdiff_t(all.size());
    const std::string text = same ? all[0] : fmt::format("{}", fmt::join(all, " "));
    const bool measured = std::ranges::any_of(all, [](const std::string& how) { return how.starts_with("measured"); });
    return measured ? fmt::format("{} {}", text, sum_of(owner.kv.conditioning)) : text;
}

} // namespace

OwnerTexts owner_texts(const CacheOwner& owner) {
    const Config& c = owner.config;
    return {{"fingerprint", owner.fingerprint},
            {"rope", rope_text(c)},
            {"types", types_text(owner)},
            {"rotation", name(owner.kv.rotation)},
            {"scale_rule", name(owner.kv.scale_rule)},
            {"conditioning", conditioning_text(owner)},
            {"shape", fmt::format("{} {} {}{}", c.num_hidden_layers, c.num_key_value_heads, c.head_dim, c.mtp ? with_head : "")},
            {"computation", printable(owner.computation, 4096)},
            {"model", printable(owner.model)}};
}

OwnerTexts prefix_owner_texts(const CacheOwner& owner) {
    OwnerTexts texts = owner_texts(owner);
    if (owner.kv.window != 0) texts["window"] = std::to_string(owner.kv.window);
    return texts;
}

PageName owner_name(const OwnerTexts& texts) {
    std::string all = fmt::format("tq-run pages {}\n", page_format_version);
    for (const auto& [key, text] : texts)
        if (key != "model") all += fmt::format("{} {} {}\n", key, text.size(), text);
    return name_of_owner(all);
}

PageLayout page_layout(const Config& c, const KvOptions& kv) {
    std::vector<PageLayout::Vector> vectors;
    for (uint32_t layer = 0; layer < c.cache_layers(); layer++) {
        const KvTypes types = kv.at(layer, c.num_hidden_layers);
        if (c.is_recurrent(layer)) vectors.resize(vectors.size() + 2);
        for (const KvType type : {types.k, types.v})
            if (!c.is_recurrent(layer))
                vectors.push_back({code_words(type, c.head_dim), scale_count(type, c.head_dim), sink_words(types, c.head_dim)});
    }
    return {c.num_key_value_heads, std::move(vectors)};
}

} // namespace tq
