// Drafts on the reference and on the CPU: states with pending tokens are those of plain decoding, and a perfect head is right.
#include "model/cpu/forward.h"
#include "model/cpu/stage.h"
#include "model/reference/forward.h"
#include "model/stages/split_forward.h"
#include "tests/support/drafts.h"
#include <array>

using namespace tq;
using namespace tq::test;

namespace {

ForwardOptions draft_options(uint32_t pending, KvOptions kv = {KvType::tq4, KvType::tq4}) {
    ForwardOptions options = hybrid_options(true, std::move(kv));
    options.pending = pending;
    return options;
}

} // namespace

TEST_CASE("drafts that are taken back leave the bits of plain decoding, on the reference") {
    for (const char* type : {"qwen3_5", "qwen3_next"}) {
        CAPTURE(type);
        const Hybrid model(type);
        const auto drafted = make_reference_forward(model.config, model.weights, draft_options(3), {}),
                   plain = make_reference_forward(model.config, model.weights, draft_options(0), {});
        check_pending(*drafted, *plain, 1, 40);
    }
}

TEST_CASE("drafts that are taken back leave the bits of plain decoding, on the CPU") {
    for (const char* type : hybrid_types)
        for (const uint32_t pending : {1u, 4u, 15u}) {
            CAPTURE(type);
            CAPTURE(pending);
            const Hybrid model(type);
            const auto drafted = make_cpu_forward(model.config, model.weights, draft_options(pending)),
                       plain = make_cpu_forward(model.config, model.weights, draft_options(0));
            check_pending(*drafted, *plain, pending, 300);
        }
}

TEST_CASE("drafts that are taken back leave the bits of plain decoding on several stages") {
    const Hybrid model("qwen3_5_moe");
    const auto make = [&](const Cache& cache, const ForwardOptions& part) {
        return make_cpu_stage(model.config, model.weights, cache, part);
    };
    const std::array<MakeStage, 2> stages{make, make};
    const auto drafted =
        make_split_forward(model.config, model.weights, draft_options(6), Split({0, 1, 1, 0, 0, 1, 0}, 2), stages);
    check_pending(*drafted, *make_cpu_forward(model.config, model.weights, draft_options(0)), 5, 100);
}

TEST_CASE("the states and caches of a model with a head for multi-token prediction are the same bits with drafts") {
    for (const char* type : {"qwen3_5", "qwen3_5_moe"}) {
        CAPTURE(type);
        KvOptions kv{KvType::tq4, KvType::tq4};
        kv.window = 32;
        const Hybrid model(type, GgmlType::Q8_0, {});
        const auto drafted = make_cpu_forward(model.config, model.weights, draft_options(4, kv)),
                   plain = make_cpu_forward(model.config, model.weights, draft_options(0, kv));
        check_pending(*drafted, *plain, 7, 200);
        const std::vector<uint32_t> prompt = ids_of(2, 50);
        CHECK(acceptance(*drafted, prompt, 4, 60) < 0.5); // its head is random
    }
}

TEST_CASE("a head that is perfect by construction is always right") {
    for (const char* type : hybrid_types) {
        CAPTURE(type);
        const Hybrid model(type, GgmlType::F16, {.tied = false, .perfect_mtp = true});
        const std::vector<uint32_t> prompt = ids_of(2, 50);
        CHECK(acceptance(*make_reference_forward(model.config, model.weights, draft_options(3), {}), prompt, 3, 80) == 1);
        CHECK(acceptance(*make_cpu_forward(model.config, model.weights, draft_options(3)), prompt, 3, 80) == 1);
    }
}

TEST_CASE("a draft ends where the context or the cache does, and slots are drafted together") {
    const Hybrid model("qwen3_5", GgmlType::F16, {.tied = false, .perfect_mtp = true});
    ForwardOptions options = draft_options(3);
    options.context_size = 40;
    const auto forward = make_cpu_forward(model.config, model.weights, options);
    const std::vector<uint32_t> ids = ids_of(5, 38);
    std::vector<DraftStart> starts;
    for (uint32_t slot = 0; slot < 4; slot++) {
        const Span span{slot, std::span(ids).first(38 - slot)};
        forward->run(std::span(&span, 1), [](size_t, uint32_t, std::span<const float>) {});
        starts.push_back({slot, ids[slot]});
    }
    const auto together = forward->draft(starts, 3);
    for (uint32_t slot = 0; slot < 4; slot++) {
        CHECK(together[slot].size() == std::min(2 + slot, 3u));
        CHECK(forward->draft(std::span(&starts[slot], 1), 3)[0] == together[slot]);
    }
}

TEST_CASE("likely drafts are the most probable of the first ids, and texts of other ids have others") {
    Config config = small_config(*find_model_type("qwen3_5"));
    config.vocab_size = likely_ids + 3000;
    for (const GgmlType type : {GgmlType::F16, GgmlType::Q8_0}) {
        const Hybrid model(config, type, {});
        const auto forward = make_cpu_forward(model.config, model.weights, draft_options(3));
        check_likely_drafts(*forward);
    }
}
