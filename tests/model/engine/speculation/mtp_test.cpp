// Answers of hybrid models with drafts: the same as without, from the model's own head and from lookups.
#include "model/cpu/forward.h"
#include "model/engine/session.h"
#include "model/engine/speculation/mtp.h"
#include "model/engine/speculation/ngram.h"
#include "model/engine/speculation/speculation.h"
#include "tests/support/hybrids.h"

using namespace tq;
using namespace tq::test;

namespace {

std::unique_ptr<Forward> make(const Hybrid& model, uint32_t pending) {
    ForwardOptions options = hybrid_options(true, {KvType::tq4, KvType::tq4});
    options.speculative = true;
    options.pending = pending;
    options.slots = 1;
    return make_cpu_forward(model.config, model.weights, options);
}

// Two turns of a conversation, whose second prompt goes on with the first answer. Returns the ids of both.
std::vector<uint32_t> converse(Forward& forward, Speculation* speculation, const SamplerOptions& sampling, Timings& timings) {
    Session session(forward);
    Sampler sampler(sampling);
    std::vector<uint32_t> all = ids_of(2, 50), said;
    for (int turn = 0; turn < 2; turn++) {
        GenerateOptions options{.max_tokens = 60};
        options.speculation = speculation;
        const Generated answer = session.generate(all, sampler, options);
        timings.drafted_tokens += answer.timings.drafted_tokens;
        timings.accepted_tokens += answer.timings.accepted_tokens;
        all.insert(all.end(), answer.ids.begin(), answer.ids.end());
        said.insert(said.end(), answer.ids.begin(), answer.ids.end());
        CHECK(session.cached_ids() == std::vector(all.begin(), all.end() - 1)); // the last one is not run
        for (const uint32_t id : ids_of(turn + 7, 12)) all.push_back(id);
    }
    return said;
}

void check_same(const Hybrid& model, uint32_t pending, const std::function<std::unique_ptr<Drafter>()>& drafter,
                const SamplerOptions& sampling, double min, double max) {
    const auto plain = make(model, 0), drafting = make(model, pending);
    Speculation speculation(drafter(), {.draft_max = pending, .adaptive = false});
    Timings none, drafts;
    CHECK(converse(*plain, nullptr, sampling, none) == converse(*drafting, &speculation, sampling, drafts));
    CHECK(none.drafted_tokens == 0);
    REQUIRE(drafts.drafted_tokens > 0);
    const double right = double(drafts.accepted_tokens) / drafts.drafted_tokens;
    CHECK(right >= min);
    CHECK(right <= max);
}

const auto by_head = [] { return std::make_unique<MtpDrafter>(); };
const auto by_lookup = [] { return std::make_unique<NgramDrafter>(); };

} // namespace

TEST_CASE("a perfect head is always right, and changes nothing") {
    for (const char* type : hybrid_types) {
        CAPTURE(type);
        check_same(Hybrid(type, GgmlType::F16, {.tied = false, .perfect_mtp = true}), 3, by_head, {.temperature = 0}, 1, 1);
    }
}

TEST_CASE("a random head is mostly wrong, and changes nothing, whatever the sampling") {
    const Hybrid model("qwen3_5", GgmlType::Q8_0, {});
    for (const float temperature : {0.0f, 1.2f})
        for (const uint32_t pending : {1u, 3u, 7u})
            check_same(model, pending, by_head, {.temperature = temperature, .seed = 3}, 0, 0.5);
}

TEST_CASE("lookups change nothing in the answers of a hybrid model") {
    for (const char* type : hybrid_types) {
        CAPTURE(type);
        check_same(Hybrid(type), 5, by_lookup, {.temperature = 0}, 0, 1);
    }
}

TEST_CASE("several slots are drafted at once, each as alone, where the slot has all tokens but the last") {
    const Hybrid model("qwen3_5", GgmlType::F16, {.tied = false, .perfect_mtp = true});
    ForwardOptions options = hybrid_options(true, {KvType::tq4, KvType::tq4});
    options.pending = 3;
    const auto forward = make_cpu_forward(model.config, model.weights, options);
    MtpDrafter drafter;
    std::vector<std::vector<uint32_t>> texts;
    std::vector<DraftRequest> requests;
    for (uint32_t slot = 0; slot < 4; slot++) {
        const std::vector<uint32_t>& text = texts.emplace_back(ids_of(slot, 20 + slot));
        const Span span{slot, std::span(text).first(text.size() - (slot == 1 ? 2 : 1))};
        forward->run(std::span(&span, 1), [](size_t, uint32_t, std::span<const float>) {});
    }
    for (const uint32_t slot : {2u, 1u, 3u, 0u}) requests.push_back({slot, texts[slot], 1 + slot % 3});
    const std::vector<Draft> together = drafter.draft(*forward, requests);
    for (size_t i = 0; i < requests.size(); i++) {
        CHECK(together[i].ids == drafter.draft(*forward, std::span(&requests[i], 1))[0].ids);
        CHECK(together[i].ids.size() == (requests[i].slot == 1 ? 0 : requests[i].max_tokens));
    }
    CHECK(together[0].ids[0] != together[2].ids[0]);
}
