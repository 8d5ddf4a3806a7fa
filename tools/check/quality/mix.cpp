// The best mix of cache types under a budget: a knapsack with one choice for each layer and side. Costs are the KL divergences
// that each type has alone in its place, added up, which is an assumption (`tq-run mix` measures the result).
// best_choices is exact: dynamic programming over the bytes beyond the smallest choice of each part, in units of their greatest
// common divisor. cost[u] is the least cost that spends exactly u units; `chosen` remembers the choice of each part, so the way
// is read back from the end. The table has parts x units bytes and is limited, since sizes of types without a common divisor
// would make it large.
#include "tools/check/quality/mix.h"
#include "base/ensure.h"
#include "base/error.h"
#include <algorithm>
#include <iterator>
#include <limits>
#include <numeric>

namespace tq::quality {
namespace {

constexpr uint64_t max_table_bytes = 1 << 30;
constexpr double impossible = std::numeric_limits<double>::infinity();
constexpr std::array sides{KvSide::key, KvSide::value};

uint64_t min_bytes(const std::vector<Choice>& part) { return std::ranges::min(part, {}, &Choice::bytes).bytes; }

// The bytes of each choice beyond the smallest of its part, in units of their greatest common divisor.
struct Units {
    std::vector<std::vector<uint64_t>> of;
    uint64_t max = 0; // the units that can be spent
};

Units units(std::span<const std::vector<Choice>> parts, uint64_t spare) {
    Units out;
    uint64_t divisor = 0, all = 0;
    for (const auto& part : parts) {
        const uint64_t min = min_bytes(part);
        auto& more = out.of.emplace_back();
        for (const Choice& choice : part) divisor = std::gcd(divisor, more.emplace_back(choice.bytes - min));
        all += std::ranges::max(more);
    }
    divisor = std::max<uint64_t>(divisor, 1);
    for (auto& part : out.of)
        for (uint64_t& bytes : part) bytes /= divisor;
    out.max = std::min(spare, all) / divisor;
    return out;
}

} // namespace

// A multiple-choice knapsack, solved by dynamic programming. All parts begin with their smallest choice; the rest of the budget
// is spent in units (Units). Time grows with parts x choices x units, and `chosen` has a byte for each part and unit. The least
// cost of all sums wins, which need not spend the whole budget; going back from it through `chosen` gives the choice of each
// part.
std::optional<std::vector<size_t>> best_choices(std::span<const std::vector<Choice>> parts, uint64_t budget) {
    uint64_t min = 0;
    for (const auto& part : parts) {
        ENSURE(!part.empty() && part.size() <= UINT8_MAX, "{} choices", part.size());
        min += min_bytes(part);
    }
    if (min > budget) return std::nullopt;
    const Units unit = units(parts, budget - min);
    const uint64_t columns = unit.max + 1;
    if (columns > max_table_bytes / std::max<size_t>(parts.size(), 1))
        fail("a table of {} by {} sizes is too large: choose among fewer types", parts.size(), columns);

    // cost[u]: the least cost of the parts so far that spend exactly u units; chosen[part][u]: the choice that achieves it.
    std::vector<double> cost(columns, impossible), next(columns);
    std::vector<uint8_t> chosen(parts.size() * columns);
    cost[0] = 0;
    for (size_t p = 0; p < parts.size(); p++) {
        std::ranges::fill(next, impossible);
        for (size_t c = 0; c < parts[p].size(); c++)
            for (uint64_t u = unit.of[p][c]; u < columns; u++)
                if (const double sum = cost[u - unit.of[p][c]] + parts[p][c].cost; sum < next[u]) {
                    next[u] = sum;
                    chosen[p * columns + u] = uint8_t(c);
                }
        cost.swap(next);
    }
    uint64_t at = uint64_t(std::ranges::min_element(cost) - cost.begin());
    std::vector<size_t> out(parts.size());
    for (size_t p = parts.size(); p-- > 0;) {
        out[p] = chosen[p * columns + at];
        at -= unit.of[p][out[p]];
    }
    return out;
}

Sensitivities::Sensitivities(const KvOptions& base, uint32_t layers, const std::vector<KvType>& types,
                             std::vector<bool> recurrent)
    : base_(base), layers_(layers), recurrent_(std::move(recurrent)) {
    ENSURE(base.k == base.v && base.layers.empty(), "{}", describe(base));
    for (const KvSide side : sides) {
        auto& own = types_[size_t(side)];
        std::ranges::copy_if(types, std::back_inserter(own),
                             [&](KvType type) { return side == KvSide::key || values_beside(type) == type; });
        if (own.empty()) fail("{} is for keys alone: name a type for values, too, such as tq4", name(types.at(0)));
        kl_[size_t(side)].resize(layers * own.size());
        for (uint32_t layer = 0; layer < layers; layer++) {
            set({layer, side, base.k}, 0);
            for (const KvType type : own)
                if (!stores(layer)) set({layer, side, type}, 0);
        }
    }
}

// Returns the place in the side's kl_, or its size if it has none.
size_t Sensitivities::index(const Probe& probe) const {
    const auto& own = types(probe.side);
    const auto type = std::ranges::find(own, probe.type);
    if (type == own.end() || probe.layer >= layers_) return layers_ * own.size();
    return probe.layer * own.size() + size_t(type - own.begin());
}

std::vector<Probe> Sensitivities::missing() const {
    std::vector<Probe> out;
    for (uint32_t layer = 0; layer < layers_; layer++)
        for (const KvSide side : sides)
            for (const KvType type : types(side))
                if (const Probe probe{layer, side, type}; !kl_[size_t(side)][index(probe)]) out.push_back(probe);
    return out;
}

void Sensitivities::set(const Probe& probe, double kl) {
    auto& all = kl_[size_t(probe.side)];
    if (const size_t i = index(probe); i < all.size()) all[i] = kl;
}

KvOptions Sensitivities::options(const Probe& probe) const {
    KvOptions kv = base_;
    KvTypes types{base_.k, base_.v};
    (probe.side == KvSide::key ? types.k : types.v) = probe.type;
    kv.layers = {{int(probe.layer), int(probe.layer), types}};
    return kv;
}

double Sensitivities::predicted(uint32_t layer, KvSide side, KvType type) const {
    const auto& all = kl_[size_t(side)];
    const size_t i = index({layer, side, type});
    ENSURE(i < all.size() && all[i], "layer {}, {}", layer, name(type));
    return *all[i];
}

double Sensitivities::predicted(const KvOptions& kv) const {
    double sum = 0;
    for (uint32_t layer = 0; layer < layers_; layer++) {
        const KvTypes types = kv.at(layer, layers_);
        sum += predicted(layer, KvSide::key, types.k) + predicted(layer, KvSide::value, types.v);
    }
    return sum;
}

std::optional<KvOptions> Sensitivities::best_mix(uint64_t budget, uint32_t kv_heads, uint32_t head_dim) const {
    std::vector<std::vector<Choice>> parts;
    for (uint32_t layer = 0; layer < layers_; layer++)
        for (const KvSide side : sides) {
            if (!stores(layer)) continue;
            auto& part = parts.emplace_back();
            for (const KvType type : types(side))
                part.push_back({uint64_t(kv_heads) * kv_vector_bytes(type, head_dim), predicted(layer, side, type)});
        }
    const auto chosen = best_choices(parts, budget);
    if (!chosen) return std::nullopt;
    KvOptions kv = base_;
    size_t next = 0; // part of the next layer that stores something; after the last one the last
    for (uint32_t layer = 0; layer < layers_; layer++) {
        const size_t of = std::min(next, chosen->size() - 2);
        kv.layers.push_back(
            {int(layer), int(layer), {types(KvSide::key)[(*chosen)[of]], types(KvSide::value)[(*chosen)[of + 1]]}});
        next += stores(layer) ? 2 : 0;
    }
    kv.layer_count = layers_;
    kv.k = kv.layers[0].types.k;
    kv.v = kv.layers[0].types.v;
    return kv;
}

std::optional<KvOptions> Sensitivities::best_pair(uint64_t budget, uint32_t kv_heads, uint32_t head_dim) const {
    std::optional<KvOptions> best;
    const uint32_t layers = layers_ - uint32_t(std::ranges::count(recurrent_, true));
    for (const KvType k : types(KvSide::key))
        for (const KvType v : types(KvSide::value)) {
            KvOptions kv = base_;
            kv.set({k, v});
            if (kv_bytes_per_token(kv, layers, kv_heads, head_dim) <= budget && (!best || predicted(kv) < predicted(*best)))
                best = kv;
        }
    return best;
}

} // namespace tq::quality
