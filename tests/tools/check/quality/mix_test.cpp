// The choice of types within a budget: against all combinations, and the prediction for a mix.
#include "base/error.h"
#include "tools/check/quality/mix.h"
#include <algorithm>
#include <doctest/doctest.h>
#include <random>

using namespace tq;
using namespace tq::quality;

namespace {

struct Total {
    uint64_t bytes = 0;
    double cost = 0;
};

Total total(const std::vector<std::vector<Choice>>& parts, const std::vector<size_t>& chosen) {
    Total sum;
    for (size_t i = 0; i < parts.size(); i++) {
        sum.bytes += parts[i][chosen[i]].bytes;
        sum.cost += parts[i][chosen[i]].cost;
    }
    return sum;
}

// The best of all combinations.
std::optional<Total> by_trying_all(const std::vector<std::vector<Choice>>& parts, uint64_t budget) {
    std::optional<Total> best;
    std::vector<size_t> chosen(parts.size());
    for (;;) {
        const Total here = total(parts, chosen);
        if (here.bytes <= budget && (!best || here.cost < best->cost || (here.cost == best->cost && here.bytes < best->bytes)))
            best = here;
        size_t i = 0;
        while (i < parts.size() && ++chosen[i] == parts[i].size()) chosen[i++] = 0;
        if (i == parts.size()) return best;
    }
}

} // namespace

TEST_CASE("the best choices are those that trying all finds") {
    std::mt19937 random(5);
    for (int round = 0; round < 300; round++) {
        const uint64_t unit = 1 + random() % 20;
        std::vector<std::vector<Choice>> parts(1 + random() % 5);
        uint64_t min = 0, max = 0;
        for (auto& part : parts) {
            for (size_t i = 0; i < 1 + random() % 5; i++)
                part.push_back({unit * (random() % 30), double(random() % 64)}); // sums are exact
            min += std::ranges::min(part, {}, &Choice::bytes).bytes;
            max += std::ranges::max(part, {}, &Choice::bytes).bytes;
        }
        for (const uint64_t budget : {min, (min + max) / 2, min + random() % (max - min + 1), max, max + 1000, UINT64_MAX}) {
            const auto chosen = best_choices(parts, budget);
            const auto best = by_trying_all(parts, budget);
            REQUIRE(chosen);
            const Total found = total(parts, *chosen);
            CHECK(found.cost == best->cost);
            CHECK(found.bytes == best->bytes);
        }
        if (min > 0) CHECK_FALSE(best_choices(parts, min - 1));
    }
}

TEST_CASE("a mix spends bytes where they help") {
    constexpr uint32_t layers = 3, kv_heads = 2, head_dim = 128;
    const KvOptions base{KvType::f16, KvType::f16, RotationKind::haar};
    Sensitivities s(base, layers, {KvType::tq2, KvType::tq4, KvType::f16});
    CHECK(s.missing().size() == layers * 2 * 2); // f16 costs nothing
    for (const Probe& probe : s.missing()) {
        const KvOptions kv = s.options(probe);
        CHECK(kv.rotation == RotationKind::haar);
        uint32_t changed = 0;
        for (uint32_t layer = 0; layer < layers; layer++) {
            const KvTypes types = kv.at(layer, layers);
            if (layer == probe.layer) CHECK((probe.side == KvSide::key ? types.k : types.v) == probe.type);
            changed += (types.k != KvType::f16) + (types.v != KvType::f16);
        }
        CHECK(changed == 1);
        const double weight = probe.layer == 1 && probe.side == KvSide::key ? 100 : 1; // the keys of layer 1 matter
        s.set(probe, weight * (probe.type == KvType::tq2 ? 0.1 : 0.01));
    }
    CHECK(s.missing().empty());
    const uint64_t tq4 = kv_bytes_per_token({KvType::tq4, KvType::tq4}, layers, kv_heads, head_dim);
    const auto mix = s.best_mix(tq4, kv_heads, head_dim);
    REQUIRE(mix);
    CHECK(kv_bytes_per_token(*mix, layers, kv_heads, head_dim) <= tq4);
    CHECK(mix->at(1, layers).k == KvType::tq4);
    CHECK(s.predicted(*mix) == doctest::Approx(1 + 5 * 0.01)); // f16 keys would leave too little for the others

    const uint64_t more = tq4 + kv_heads * (256 - 66);
    const auto better = s.best_mix(more, kv_heads, head_dim);
    REQUIRE(better);
    CHECK(better->at(1, layers).k == KvType::f16);
    CHECK(better->layer_count == layers);
    CHECK(s.predicted(*better) == doctest::Approx(5 * 0.01));
    CHECK(better->rotation == RotationKind::haar);

    const auto pair = s.best_pair(tq4, kv_heads, head_dim);
    REQUIRE(pair);
    CHECK(pair->k == KvType::tq4);
    CHECK(pair->layers.empty());
    const uint64_t tq2 = kv_bytes_per_token({KvType::tq2, KvType::tq2}, layers, kv_heads, head_dim);
    CHECK(s.best_mix(tq2, kv_heads, head_dim));
    CHECK_FALSE(s.best_mix(tq2 - 1, kv_heads, head_dim));
    CHECK_FALSE(s.best_pair(tq2 - 1, kv_heads, head_dim));
    s.set({7, KvSide::key, KvType::tq2}, 1); // of another model: no effect
    s.set({0, KvSide::key, KvType::tq8}, 1);
    CHECK(s.missing().empty());
}

TEST_CASE("types of unequal bits are for keys alone") {
    constexpr uint32_t layers = 2, kv_heads = 2, head_dim = 128;
    Sensitivities s({KvType::f16, KvType::f16}, layers, {KvType::tq4u, KvType::tq4, KvType::f16});
    CHECK(s.missing().size() == layers * (2 + 1));
    for (const Probe& probe : s.missing()) {
        CHECK((probe.side == KvSide::key || probe.type == KvType::tq4));
        s.set(probe, probe.type == KvType::tq4u ? 0.001 : 0.01);
    }
    const uint64_t budget = kv_bytes_per_token({KvType::tq4u, KvType::tq4}, layers, kv_heads, head_dim);
    const auto mix = s.best_mix(budget, kv_heads, head_dim);
    REQUIRE(mix);
    for (uint32_t layer = 0; layer < layers; layer++) CHECK(mix->at(layer, layers) == KvTypes{KvType::tq4u, KvType::tq4});
    CHECK_NOTHROW(check_kv(*mix, layers));
    const auto pair = s.best_pair(budget, kv_heads, head_dim);
    REQUIRE(pair);
    CHECK(describe(*pair) == "tq4u/tq4");
    CHECK_THROWS_WITH_AS(Sensitivities({KvType::f16, KvType::f16}, layers, {KvType::tq5u, KvType::tq4u}),
                         doctest::Contains("tq5u is for keys alone: name a type for values, too"), Error);
}

TEST_CASE("of a hybrid only layers that store something are measured and counted") {
    constexpr uint32_t layers = 5, kv_heads = 2, head_dim = 256;
    Sensitivities s({KvType::f16, KvType::f16}, layers, {KvType::tq2, KvType::tq4, KvType::f16},
                    {true, true, false, false, true});
    CHECK(s.missing().size() == 2 * 2 * 2);
    for (const Probe& probe : s.missing()) {
        CHECK((probe.layer == 2 || probe.layer == 3));
        s.set(probe, (probe.layer == 2 ? 10 : 1) * (probe.type == KvType::tq2 ? 0.1 : 0.01));
    }
    const auto bytes = [&](KvType of_2, KvType of_3) {
        return kv_bytes_per_token({of_2, of_2}, 1, kv_heads, head_dim) + kv_bytes_per_token({of_3, of_3}, 1, kv_heads, head_dim);
    };
    const auto mix = s.best_mix(bytes(KvType::tq4, KvType::tq2), kv_heads, head_dim);
    REQUIRE(mix);
    CHECK(mix->layer_count == layers);
    for (const uint32_t layer : {0u, 1u, 2u}) CHECK(mix->at(layer, layers).k == KvType::tq4);
    for (const uint32_t layer : {3u, 4u}) CHECK(mix->at(layer, layers).k == KvType::tq2);
    CHECK(s.predicted(*mix) == doctest::Approx(2 * 0.1 + 2 * 0.1));
    CHECK_FALSE(s.best_mix(bytes(KvType::tq2, KvType::tq2) - 1, kv_heads, head_dim));
    const auto pair = s.best_pair(bytes(KvType::tq4, KvType::tq4), kv_heads, head_dim);
    REQUIRE(pair);
    CHECK(pair->k == KvType::tq4);
}
