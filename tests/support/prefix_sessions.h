// Sessions with a prefix cache: checks for every implementation of Forward.
#pragma once
#include "model/prefix/cache.h"
#include "model/prefix/cold.h"
#include "model/session.h"
#include "tests/support/small_model.h"
#include "tests/support/spans.h"

namespace tq {

// A model's prefix cache with a disk of its own.
struct PrefixPlace {
    const SmallModel& model;
    MakeForward make;
    test::TemporaryDirectory directory;

    OwnerTexts owner(const Forward& forward, const KvOptions& kv) const {
        return owner_texts({model.config, kv, "a fingerprint", "a model", forward.computation()});
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
                cache = place.open(*one, kv);
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

// With a window, a prompt of so many tokens, the first 310 of which are found, goes on as from the codes alone, and has a full
// window at its end.
inline void check_found_with_window(const SmallModel& model, const MakeForward& make, uint32_t length) {
    for (const KvOptions& kv : {with_window(KvType::tq4, KvType::tq4, 16), with_window(KvType::tq3t, KvType::q8_0, 100)}) {
        CAPTURE(describe(kv));
        CAPTURE(length);
        const PrefixPlace place{model, make, {}};
        std::mt19937 random(4);
        const Ids text = random_ids(random, length);
        const ForwardOptions options = prefix_options(kv, false);
        const auto first = make(options), warm = make(options), codes = make(options);
        {
            const auto cache = place.open(*first, kv);
            Session session(*first, cache.get(), Reuse::cold);
            Sampler sampler({.temperature = 0}, {});
            session.generate(std::span(text).first(310), sampler, {.max_tokens = 1});
        }
        const auto cache = place.open(*warm, kv);
        Session session(*warm, cache.get(), Reuse::cold);
        const auto logits = copy_of(session.prefill(text));
        const uint32_t found = session.timings().reused_tokens;
        CHECK(found == reusable_tokens(warm->block_kernels(), std::min(310u, length - kv.window), length));
        CHECK(found >= 180);
        CHECK(warm->cache().window(0).first(length - 1) == length - kv.window);
        codes->cache().restore(0, found, [&](uint32_t at, std::span<std::byte> bytes) {
            first->cache().read_page(first->cache().table(0)[at / page_tokens], std::min(page_tokens, found - at), bytes);
        });
        CHECK(logits == copy_of(codes->run(std::span(text).subspan(found))));
    }
}

} // namespace tq
