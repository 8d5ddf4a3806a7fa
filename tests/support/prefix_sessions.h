// Sessions with a prefix cache: checks for every implementation of Forward.
#pragma once
#include "model/engine/session.h"
#include "model/prefix/cache.h"
#include "model/prefix/cold.h"
#include "tests/support/small_model.h"
#include "tests/support/spans.h"

namespace tq {

// A model's prefix cache with a disk of its own.
struct PrefixPlace {
    const SmallModel& model;
    MakeForward make;
    test::TemporaryDirectory directory;

    OwnerTexts owner(const Forward& forward, const KvOptions& kv) const {
        return prefix_owner_texts({model.config, kv, "a fingerprint", "a model", forward.computation()});
    }
    std::unique_ptr<PrefixCache> open(Forward& forward, const KvOptions& kv, uint64_t memory = 0, bool disk = true) const {
        PrefixCache::Options options{.memory_bytes = memory};
        if (disk) options.disk = {directory.path() / "prefix", 1 << 30};
        return std::make_unique<PrefixCache>(forward, owner(forward, kv), options);
    }
};

inline std::vector<float> copy_of(std::span<const float> logits) { return {logits.begin(), logits.end()}; }

inline ForwardOptions prefix_options(const KvOptions& kv, bool deterministic, uint32_t batch = 32) {
    return {.kv = kv, .context_size = 900, .threads = 2, .batch_size = batch, .deterministic = deterministic};
}

// Prompts that share beginnings of many lengths, with answers between them, have the logits of a cold run, bit for bit: found on
// the device, in memory, and on the disk by another process.
inline void check_warm_is_cold(const SmallModel& model, const MakeForward& make, const std::vector<KvOptions>& all,
                               const std::vector<uint32_t>& lengths, bool deterministic, uint32_t batch = 32) {
    for (const KvOptions& kv : all) {
        CAPTURE(describe(kv));
        const PrefixPlace place{model, make, {}};
        std::mt19937 random(4);
        const Ids text = random_ids(random, 800);
        const auto cold = make(prefix_options(kv, deterministic, batch)), one = make(prefix_options(kv, deterministic, batch));
        uint64_t reused = 0, from_disk = 0;
        std::unique_ptr<PrefixCache> cache;
        for (size_t i = 0; i < lengths.size(); i++) {
            if (i % 3 == 0) { // as after a restart
                cache.reset();
                one->truncate(0);
                cache = place.open(*one, kv, i % 2 == 0 ? 0 : uint64_t(1) << 30);
            }
            Ids prompt(text.begin(), text.begin() + ptrdiff_t(lengths[i]));
            if (i % 2 == 1) prompt.back() = (prompt.back() + 1) % 300; // a branch
            Session session(*one, cache.get(), Reuse::cold);
            one->truncate(0);
            CAPTURE(lengths[i]);
            const auto logits = copy_of(session.prefill(prompt));
            reused += session.timings().reused_tokens;
            cold->truncate(0);
            REQUIRE(logits == copy_of(cold->run(prompt)));
            REQUIRE(same_stored(one->cache(), 0, cold->cache(), 0));
            REQUIRE(same_beside(one->cache(), 0, cold->cache(), 0));
            Sampler sampler({.temperature = 0}, {});
            GenerateOptions options;
            options.max_tokens = 1 + uint32_t(random() % 40);
            session.generate(prompt, sampler, options); // its tokens are not cold
            cache->flush();
            from_disk += cache->statistics().disk_tokens;
            REQUIRE(cache->take_warnings().empty());
        }
        CHECK(reused > 0);
        CHECK(from_disk > 0);
    }
}

// The types of caches with a window: one that is narrower than a short slice, the usual one, and one that is wider than a block;
// and a layer without one.
inline std::vector<KvOptions> windowed_types() {
    std::vector<KvOptions> all{with_window(KvType::tq4, KvType::tq4, 16), with_window(KvType::tq4, KvType::tq3t, 64),
                               with_window(KvType::tq3t, KvType::q8_0, 100)};
    all[1].layers = parse_kv_layers("-1=f16");
    return all;
}

} // namespace tq
