// Checks for every implementation of Forward that drafts change no answer.
#pragma once
#include "model/engine/session.h"
#include "model/engine/speculation/speculation.h"
#include "tests/support/one_drafter.h"
#include "tests/support/spans.h"

namespace tq {

// Proposes what it has been told will follow, with a share of wrong tokens.
class Oracle final : public OneDrafter {
  public:
    Oracle(Ids sequence, double wrong, uint32_t seed) : sequence_(std::move(sequence)), wrong_(wrong), random_(seed) {}

    Ids propose(std::span<const uint32_t> ids, uint32_t max) override {
        Ids out;
        for (size_t i = ids.size(); i < sequence_.size() && out.size() < max; i++)
            out.push_back(random_() % 1000 < wrong_ * 1000 ? (sequence_[i] + 1) % 300 : sequence_[i]);
        return out;
    }

  private:
    const Ids sequence_;
    const double wrong_;
    std::mt19937 random_;
};

inline std::vector<SamplerOptions> ways_to_sample() {
    SamplerOptions greedy, seeded, penalised;
    greedy.temperature = 0;
    seeded.temperature = penalised.temperature = 1.3f;
    seeded.top_k = 0;
    seeded.seed = 3;
    penalised.seed = 4;
    penalised.repeat_penalty = 1.3f;
    penalised.presence_penalty = 0.6f;
    penalised.frequency_penalty = 0.4f;
    return {greedy, seeded, penalised};
}

struct Answered {
    Ids ids, cached;
    std::vector<uint32_t> words; // that the sampler takes next
    std::vector<float> logits;   // that follow one more token
    Timings timings;
};

inline Answered answer(Forward& forward, const SamplerOptions& options, const Ids& prompt, uint32_t tokens,
                       Speculation* speculation) {
    Session session(forward);
    forward.truncate(0);
    Sampler sampler(options);
    GenerateOptions generate{.max_tokens = tokens};
    generate.speculation = speculation;
    const Generated result = session.generate(prompt, sampler, generate);
    Answered out{result.ids, session.cached_ids(), sampler.device_sampling(4).random, {}, result.timings};
    REQUIRE(forward.position() == out.cached.size());
    out.logits = run_one(forward, 0, {7});
    return out;
}

inline void check_equal(const Answered& a, const Answered& b) {
    CHECK(a.ids == b.ids);
    CHECK(a.cached == b.cached);
    CHECK(a.words == b.words);
    CHECK(a.logits == b.logits);
    CHECK(a.timings.decoded_tokens == b.timings.decoded_tokens);
}

// With drafts that are right, wrong, and both, across the end of a page: the tokens, the sampler's state, the bytes in the cache
// and the logits that follow.
inline void check_answers_with_drafts(const MakeForward& make, const std::vector<KvOptions>& types, bool speculative_plain,
                                      const std::vector<SamplerOptions>& ways = ways_to_sample()) {
    constexpr uint32_t tokens = 40;
    for (const KvOptions& kv : types) {
        CAPTURE(describe(kv));
        ForwardOptions options = options_of(kv, 1);
        options.speculative = speculative_plain;
        const auto plain = make(options);
        options.speculative = true;
        const auto drafting = make(options);
        std::mt19937 random(9);
        const Ids prompt = random_ids(random, 235);
        for (const SamplerOptions& sampling : ways) {
            CAPTURE(sampling.seed);
            const Answered expected = answer(*plain, sampling, prompt, tokens, nullptr);
            Ids all = prompt;
            all.insert(all.end(), expected.ids.begin(), expected.ids.end());
            for (const double wrong : {0.0, 0.3, 1.0}) {
                CAPTURE(wrong);
                Speculation speculation(std::make_unique<Oracle>(all, wrong, 5), {.adaptive = false});
                const Answered got = answer(*drafting, sampling, prompt, tokens, &speculation);
                check_equal(got, expected);
                CHECK(same_stored(plain->cache(), 0, drafting->cache(), 0));
                const Timings& t = got.timings;
                if (wrong == 0) CHECK((t.accepted_tokens == t.drafted_tokens && t.drafted_tokens > tokens / 2));
                if (wrong == 1) CHECK((t.accepted_tokens == 0 && t.drafted_tokens >= tokens));
                if (wrong == 0.3) CHECK((t.accepted_tokens > 0 && t.accepted_tokens < t.drafted_tokens));
            }
        }
    }
}

} // namespace tq
