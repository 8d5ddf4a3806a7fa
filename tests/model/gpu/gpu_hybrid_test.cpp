// Hybrids on a device: the bits of a sequence do not depend on its company or its slices, and its states go wherever its slot
// goes.
#include "model/cpu/forward.h"
#include "model/files/formats/gguf.h"
#include "model/gpu/forward.h"
#include "model/gpu/tuning_file.h"
#include "tests/support/hybrids.h"
#include "tests/support/relative_error.h"
#include "tests/support/small_model.h"
#include <algorithm>
#include <limits>

using namespace tq;
using namespace tq::test;

namespace {

// The size of its blocks does not depend on the times of earlier blocks.
std::unique_ptr<Forward> on_device(const Hybrid& model, Device& device, const ForwardOptions& options) {
    const gpu::Tuning tuning = gpu::tuning_for(device.capabilities());
    ThreadPool pool(1);
    auto uploaded = std::make_shared<const gpu::DeviceWeights>(
        gpu::upload_weights(device, pool, model.weights, tuning.weight_interleave, {}));
    return make_gpu_forward(device, model.config, std::move(uploaded), options, tuning, std::numeric_limits<double>::infinity());
}

} // namespace

TEST_CASE("a hybrid's logits and states on a device are the same bits whole, by 7, and one by one") {
    Device device;
    for (const char* type : hybrid_types) {
        CAPTURE(type);
        const Hybrid model(type);
        const auto forward = on_device(model, device, hybrid_options(true));
        const auto ids = ids_of(1, 60);
        const Logits want = run(*forward, 2, ids, 60);
        const SavedSlot state = forward->cache().save_slot(2);
        CHECK(state.state.size() == model.config.state_bytes());
        for (const uint32_t step : {7u, 1u}) {
            CAPTURE(step);
            forward->cache().truncate(2, 0);
            CHECK(run(*forward, 2, ids, step) == want);
            CHECK(forward->cache().save_slot(2).state == state.state);
        }
    }
}

TEST_CASE("a hybrid's sequence has on a device the bits in company that it has alone") {
    Device device;
    for (const char* type : hybrid_types) {
        CAPTURE(type);
        const Hybrid model(type);
        const auto together = on_device(model, device, hybrid_options(false)),
                   alone = on_device(model, device, hybrid_options(false));
        std::mt19937 random(4);
        for (int round = 0; round < 5; round++) {
            std::vector<std::vector<uint32_t>> ids;
            std::vector<Span> spans;
            for (uint32_t slot = 0; slot < 4; slot++) ids.push_back(random_ids(random, 1 + random() % (round < 3 ? 60 : 3)));
            for (const uint32_t slot : {3u, 0u, 2u, 1u}) spans.push_back({slot, ids[slot], Span::Logits::last});
            Logits got(4);
            together->run(spans, [&](size_t span, uint32_t, std::span<const float> logits) {
                got[span].assign(logits.begin(), logits.end());
            });
            for (size_t i = 0; i < spans.size(); i++) {
                const uint32_t slot = spans[i].slot;
                CAPTURE(slot);
                alone->run(std::span(&spans[i], 1),
                           [&](size_t, uint32_t, std::span<const float> logits) { CHECK(std::ranges::equal(logits, got[i])); });
                CHECK(together->cache().save_slot(slot).state == alone->cache().save_slot(slot).state);
            }
        }
    }
}

TEST_CASE("a hybrid's fork, and what is saved, restored or taken over by the CPU, goes on as the sequence itself") {
    Device device;
    for (const char* type : hybrid_types) {
        CAPTURE(type);
        const Hybrid model(type);
        const auto forward = on_device(model, device, hybrid_options(false)),
                   on_cpu = make_cpu_forward(model.config, model.weights, hybrid_options(false));
        Cache& cache = forward->cache();
        const auto ids = ids_of(2, 290), next = ids_of(3, 5);
        run(*forward, 1, ids, 290);
        run(*forward, 2, ids_of(9, 40), 40); // another state, which the fork replaces
        cache.fork(1, 2, 290);
        const SavedSlot saved = cache.save_slot(1);
        const auto page = [&](uint32_t at, std::span<std::byte> bytes) {
            cache.read_page(cache.table(1)[at / page_tokens], std::min(page_tokens, 290 - at), bytes);
        };
        cache.restore(3, 290, page, saved);
        on_cpu->cache().restore(0, 290, page, saved);
        const Logits want = run(*forward, 1, next, 5);
        CHECK(run(*forward, 2, next, 5) == want);
        CHECK(run(*forward, 3, next, 5) == want);
        CHECK(relative_error(run(*on_cpu, 0, next, 5).back(), want.back()) < 0.05); // a code at a threshold may differ
        cache.put_slot(1, saved);                                                   // back to where it was saved
        CHECK(run(*forward, 1, next, 5) == want);
        CHECK(cache.cut(1, 200) == 0); // and a sequence that begins in the same slot has no state of another
        CHECK(run(*forward, 1, ids, 290) == run(*on_device(model, device, hybrid_options(false)), 0, ids, 290));
    }
}
