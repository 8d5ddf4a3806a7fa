// The session with a toy model, which records every id that it is asked to run.
#include "model/engine/session.h"
#include "model/engine/speculation/speculation.h"
#include "tests/support/one_drafter.h"
#include "tests/support/toy_forward.h"
#include <algorithm>
#include <cmath>
#include <doctest/doctest.h>
#include <functional>
#include <numeric>

using namespace tq;

namespace {

Sampler greedy() {
    SamplerOptions options;
    options.temperature = 0;
    return Sampler(options);
}

Generated generate(Session& session, const Ids& prompt, GenerateOptions options) {
    Sampler sampler = greedy();
    return session.generate(prompt, sampler, options);
}

} // namespace

TEST_CASE("a prompt is continued greedily until the end token, which is not part of the answer") {
    ToyForward forward(64);
    Session session(forward);
    Ids streamed;
    const auto result =
        generate(session, {0, 3},
                 {.is_end = [](uint32_t id) { return id == 0; }, .on_token = [&](uint32_t id) { streamed.push_back(id); }});
    CHECK(result.ids == Ids{4, 8}); // 3+1, +4, then 16 % 16 = 0
    CHECK(streamed == result.ids);
    CHECK(result.stop == Stop::end_of_generation);
    CHECK(forward.take_ran() == Ids{0, 3, 4, 8});
    CHECK(session.cached_ids() == Ids{0, 3, 4, 8});
    CHECK(result.timings.prompt_tokens == 2);
    CHECK(result.timings.reused_tokens == 0);
    CHECK(result.timings.decoded_tokens == 2);
}

TEST_CASE("only what differs from the cache is run") {
    ToyForward forward(64);
    Session session(forward);
    session.prefill(Ids{1, 2, 3, 4});
    forward.take_ran();

    SUBCASE("a longer prompt") {
        session.prefill(Ids{1, 2, 3, 4, 5, 6});
        CHECK(forward.take_ran() == Ids{5, 6});
        CHECK(session.timings().reused_tokens == 4);
        CHECK(session.timings().prompt_tokens == 2);
    }
    SUBCASE("another ending") {
        session.prefill(Ids{1, 2, 9, 4, 5});
        CHECK(forward.take_ran() == Ids{9, 4, 5});
        CHECK(forward.tokens() == Ids{1, 2, 9, 4, 5});
    }
    SUBCASE("the same prompt: its last token again, for the logits") {
        session.prefill(Ids{1, 2, 3, 4});
        CHECK(forward.take_ran() == Ids{4});
    }
    SUBCASE("a prefix of it") {
        session.prefill(Ids{1, 2});
        CHECK(forward.take_ran() == Ids{2});
        CHECK(forward.tokens() == Ids{1, 2});
    }
    SUBCASE("nothing in common") {
        session.prefill(Ids{7});
        CHECK(forward.take_ran() == Ids{7});
        CHECK(forward.tokens() == Ids{7});
    }
}

TEST_CASE("reuse does not change the answer") {
    ToyForward warm(64), cold(64);
    Session session(warm), fresh(cold);
    generate(session, {1, 2, 3}, {.max_tokens = 5});
    const Ids next{1, 2, 3, 7, 9, 9};
    CHECK(generate(session, next, {.max_tokens = 8}).ids == generate(fresh, next, {.max_tokens = 8}).ids);
    CHECK(warm.tokens() == cold.tokens());
}

TEST_CASE("limits") {
    ToyForward forward(6);
    Session session(forward);
    SUBCASE("max_tokens") {
        const auto result = generate(session, {1}, {.max_tokens = 3});
        CHECK(result.ids.size() == 3);
        CHECK(result.stop == Stop::length);
        CHECK(forward.tokens().size() == 3); // the last one is not run: its logits are not needed
        CHECK(result.timings.decoded_tokens == 2);
    }
    SUBCASE("no tokens at all") {
        CHECK(generate(session, {1}, {.max_tokens = 0}).ids.empty());
        CHECK(forward.tokens() == Ids{1});
    }
    SUBCASE("the context") {
        const auto result = generate(session, {1, 2, 3}, {});
        CHECK(result.stop == Stop::context_full);
        CHECK(result.ids.size() == 4); // three in the cache and the next one
        CHECK(forward.tokens().size() == 6);
    }
    SUBCASE("a prompt that fills it leaves one token") {
        const auto result = generate(session, {1, 2, 3, 4, 5, 6}, {});
        CHECK(result.stop == Stop::context_full);
        CHECK(result.ids.size() == 1);
    }
    SUBCASE("a longer one is refused with the numbers, and nothing is run or forgotten") {
        session.prefill(Ids{1, 2});
        forward.take_ran();
        CHECK_THROWS_WITH_AS(session.prefill(Ids(7, 1)), doctest::Contains("7 tokens but the context holds 6"), Error);
        CHECK(forward.take_ran().empty());
        CHECK(forward.tokens() == Ids{1, 2});
    }
    SUBCASE("an empty one too") { CHECK_THROWS_WITH_AS(session.prefill({}), doctest::Contains("empty"), Error); }
}

TEST_CASE("an interrupt stops the prompt, and what was run is reused") {
    ToyForward forward(64);
    Session session(forward);
    uint32_t asked = 0;
    GenerateOptions options{.interrupted = [&] { return ++asked >= 3; }};
    const auto result = generate(session, {1, 2, 3, 4, 5}, options);
    CHECK(result.stop == Stop::interrupted);
    CHECK(result.ids.empty());
    CHECK(result.timings.prompt_tokens == 3);
    CHECK(session.cached_ids() == Ids{1, 2, 3});
    forward.take_ran();
    session.prefill(Ids{1, 2, 3, 4, 5});
    CHECK(forward.take_ran() == Ids{4, 5});
}

TEST_CASE("an interrupt stops the answer and keeps what came") {
    ToyForward forward(64);
    Session session(forward);
    bool stop = false;
    Ids streamed;
    const auto result = generate(session, {1},
                                 {.on_token =
                                      [&](uint32_t id) {
                                          streamed.push_back(id);
                                          stop = streamed.size() == 4;
                                      },
                                  .interrupted = [&] { return stop; }});
    CHECK(result.stop == Stop::interrupted);
    CHECK(result.ids == streamed);
    CHECK(result.ids.size() == 4);
}

TEST_CASE("an answer for which memory runs out ends there, and the session goes on") {
    ToyForward forward(64);
    Session session(forward);
    forward.full_at = 5;
    const auto result = generate(session, {1, 2, 3}, {});
    CHECK(result.stop == Stop::memory_full);
    CHECK(result.reason == "no room for 6 tokens");
    CHECK(result.ids.size() == 3); // two in the cache, and the one for which there was no room
    CHECK(session.cached_ids().size() == 5);
    CHECK_THROWS_AS(session.prefill(Ids{7, 7, 7, 7, 7, 7}), OutOfMemory); // a prompt without room gives no answer
    CHECK(generate(session, {1, 2}, {.max_tokens = 3}).ids.size() == 3);
}

TEST_CASE("after a failure the cache has what was run") {
    ToyForward forward(64);
    Session session(forward);
    session.prefill(Ids{1, 2, 3});
    forward.breaks_at = 5;
    CHECK_THROWS_AS(session.prefill(Ids{1, 2, 3, 4, 5, 6}), Error);
    CHECK(session.cached_ids() == Ids{1, 2, 3, 4, 5});
    forward.breaks_at = SIZE_MAX;
    forward.take_ran();
    session.prefill(Ids{1, 2, 3, 4, 5, 6});
    CHECK(forward.take_ran() == Ids{6});
    CHECK(forward.tokens() == Ids{1, 2, 3, 4, 5, 6});
}

TEST_CASE("wherever the device is lost, once or twice, the answer goes on") {
    const Ids prompt{1, 2, 3, 4, 5};
    const auto converse = [&](ToyForward& forward) {
        Session session(forward);
        Sampler sampler(SamplerOptions{.seed = 5});
        Ids all = prompt;
        for (int turn = 0; turn < 2; turn++) {
            const Generated answer = session.generate(all, sampler, {.max_tokens = 12});
            CHECK(answer.stop == Stop::length);
            all.insert(all.end(), answer.ids.begin(), answer.ids.end());
            all.insert(all.end(), {7, 9});
            CHECK(forward.tokens() == session.cached_ids());
        }
        return all;
    };
    for (const uint32_t max : {0u, uint32_t(SAMPLING_STEPS)}) {
        ToyForward plain(64);
        plain.set_max_sampled(max);
        const Ids wanted = converse(plain);
        for (size_t lost_at = 0; lost_at < wanted.size() - 3; lost_at++)
            for (const size_t losses : {1, 2}) {
                CAPTURE(lost_at);
                ToyForward forward(64);
                forward.set_max_sampled(max);
                forward.lost_at = lost_at;
                forward.losses = losses;
                CHECK(converse(forward) == wanted);
                CHECK(forward.losses == 0);
            }
    }
    ToyForward forward(64);
    Session session(forward);
    forward.lost_at = 7;
    forward.losses = 1;
    forward.reopens = false;
    CHECK_THROWS_AS(generate(session, prompt, {.max_tokens = 12}), DeviceLost);
}

namespace {

// The same conversation with a forward that samples ahead and with one that does not.
struct Pair {
    explicit Pair(uint32_t context, uint32_t pages = UINT32_MAX) : ahead(context, pages), plain(context, pages) {
        ahead.set_max_sampled(SAMPLING_STEPS);
    }

    // Records everything that the caller sees, in order.
    static std::vector<std::string> follow(Session& session, Sampler& sampler, const Ids& prompt, GenerateOptions options) {
        std::vector<std::string> seen;
        options.on_token = [&](uint32_t id) { seen.push_back("token " + std::to_string(id)); };
        const Generated result = session.generate(prompt, sampler, options);
        for (const uint32_t id : result.ids) seen.push_back(std::to_string(id));
        const Timings& t = result.timings;
        for (const uint32_t n : {uint32_t(result.stop), t.reused_tokens, t.prompt_tokens, t.decoded_tokens})
            seen.push_back(std::to_string(n));
        seen.push_back(result.reason);
        return seen;
    }
    void check(const Ids& prompt, const GenerateOptions& options) {
        GenerateOptions drafting = options;
        drafting.speculation = speculation.get();
        const auto seen = follow(a, sampler_a, prompt, drafting);
        accepted += a.timings().accepted_tokens;
        CHECK(seen == follow(b, sampler_b, prompt, options));
        check_caches();
    }
    // An answer that is interrupted leaves what one of that length does.
    void check_interrupted(const Ids& prompt, GenerateOptions options, size_t after) {
        GenerateOptions interrupted = options;
        interrupted.speculation = speculation.get();
        interrupted.interrupted = [&, asked = size_t(0)]() mutable { return asked++ >= after; };
        const Generated result = a.generate(prompt, sampler_a, interrupted);
        CHECK((result.stop == Stop::interrupted || result.ids.size() == options.max_tokens));
        options.max_tokens = uint32_t(result.ids.size());
        if (options.max_tokens > 0)
            CHECK(b.generate(prompt, sampler_b, options).ids == result.ids);
        else if (!a.cached_ids().empty())
            b.prefill(a.cached_ids());
        check_caches();
    }
    void check_caches() {
        CHECK(a.cached_ids() == b.cached_ids());
        CHECK(ahead.tokens() == plain.tokens());
        CHECK(sampler_a.device_sampling(1).random == sampler_b.device_sampling(1).random);
    }

    static SamplerOptions lively() {
        SamplerOptions options;
        options.temperature = 3;
        options.top_p = 1;
        options.seed = 11;
        return options;
    }
    std::unique_ptr<Speculation> speculation;
    uint64_t accepted = 0;
    ToyForward ahead, plain;
    Session a{ahead}, b{plain};
    Sampler sampler_a{lively()}, sampler_b{lively()};
};

// Proposes the most probable tokens of ToyForward.
struct ToyDrafter final : OneDrafter {
    bool read(uint32_t, std::span<const uint32_t>, const Progress& progress) override { return !asks || progress(1, 1); }
    Ids propose(std::span<const uint32_t> ids, uint32_t max) override {
        Ids out;
        uint32_t sum = std::accumulate(ids.begin(), ids.end(), 1u);
        for (uint32_t i = 0; i < max; i++, sum += out.back()) out.push_back(sum % vocab_size);
        return out;
    }
    bool survives_loss() const override { return survives; }
    bool asks = false; // whether to go on reading
    bool survives = true;
};

} // namespace

TEST_CASE("drafting shows in nothing but the calls") {
    for (const bool adaptive : {false, true})
        for (const uint32_t max : {0u, SAMPLING_STEPS}) {
            const auto drafting = [&](Pair& pair) {
                pair.ahead.set_max_sampled(max);
                pair.speculation =
                    std::make_unique<Speculation>(std::make_unique<ToyDrafter>(), SpeculationOptions{.adaptive = adaptive});
            };
            Pair pair(400);
            drafting(pair);
            Ids prompt{1, 2, 3};
            for (uint32_t max_tokens = 0; max_tokens < 20; ++max_tokens) pair.check(prompt, {.max_tokens = max_tokens});
            for (uint32_t end = 0; end < vocab_size; ++end) {
                pair.check(prompt, {.max_tokens = 200, .is_end = [&](uint32_t id) { return id == end; }});
                prompt = pair.a.cached_ids(); // continues from there
                prompt.resize(std::min<size_t>(prompt.size(), 60));
                prompt.push_back(end);
            }
            for (size_t after = 1; after < 40; ++after) pair.check_interrupted(prompt, {.max_tokens = 50}, after);
            CHECK((adaptive || pair.accepted > 0));
            for (uint32_t context = 4; context < 45; ++context) {
                Pair short_one(context);
                drafting(short_one);
                short_one.check({1, 2, 3}, {});
                short_one.check({1, 2}, {});
            }
            for (size_t full = 3; full < 9; ++full) {
                Pair full_one(64);
                drafting(full_one);
                full_one.ahead.set_max_sampled(0);
                full_one.ahead.full_at = full_one.plain.full_at = full;
                full_one.check({1, 2, 3}, {});
            }
            Pair long_one(2000, 2);
            drafting(long_one);
            long_one.check({1, 2, 3}, {});
            CHECK(long_one.ahead.tokens().size() == 2 * page_tokens);
        }
}

TEST_CASE("an interrupt stops a draft model that reads the prompt") {
    ToyForward forward(64);
    Session session(forward);
    auto drafter = std::make_unique<ToyDrafter>();
    drafter->asks = true;
    Speculation speculation(std::move(drafter), {});
    uint32_t asked = 0;
    GenerateOptions options{.interrupted = [&] { return ++asked >= 3; }};
    options.speculation = &speculation;
    const auto result = generate(session, {1, 2}, options);
    CHECK(result.stop == Stop::interrupted);
    CHECK(result.ids.size() == 1); // the prompt's run gave it
    CHECK(session.cached_ids() == Ids{1, 2});
}

TEST_CASE("sampling ahead shows in nothing but the calls") {
    Pair pair(400);
    Ids prompt{1, 2, 3};
    for (uint32_t max_tokens = 0; max_tokens < 40; ++max_tokens) pair.check(prompt, {.max_tokens = max_tokens});
    CHECK(*std::ranges::max_element(pair.ahead.batches) == SAMPLING_STEPS);
    CHECK(pair.plain.batches.empty());
    for (uint32_t end = 0; end < vocab_size; ++end) {
        pair.check(prompt, {.max_tokens = 200, .is_end = [&](uint32_t id) { return id == end; }});
        prompt = pair.a.cached_ids(); // continues from there
        prompt.resize(std::min<size_t>(prompt.size(), 60));
        prompt.push_back(end);
    }
    for (size_t after = 0; after < 40; ++after) pair.check_interrupted(prompt, {.max_tokens = 50}, after);
}

TEST_CASE("sampling ahead stops where the context or memory does") {
    for (uint32_t context = 4; context < 45; ++context) {
        Pair pair(context);
        pair.check({1, 2, 3}, {});
        pair.check({1, 2}, {});
    }
    for (size_t full = 3; full < 9; ++full) {
        Pair pair(64);
        pair.ahead.set_max_sampled(1); // a forward finds its pages before it runs anything
        pair.ahead.full_at = pair.plain.full_at = full;
        pair.check({1, 2, 3}, {});
        pair.check({1, 2}, {.max_tokens = 2});
    }
    Pair pair(2000, 2);
    pair.check({1, 2, 3}, {});
    CHECK(pair.ahead.tokens().size() == 2 * page_tokens);
}

TEST_CASE("whatever ends an answer, nothing that was run ahead stays") {
    ToyForward forward(200);
    forward.set_max_sampled(SAMPLING_STEPS);
    Session session(forward);
    Sampler sampler = greedy();
    size_t seen = 0;
    const GenerateOptions options{.on_token = [&](uint32_t) {
        if (++seen == 9) fail("the terminal is gone");
    }};
    CHECK_THROWS_AS(session.generate(Ids{1, 2, 3}, sampler, options), Error);
    CHECK(forward.tokens() == session.cached_ids());
    CHECK(session.cached_ids().size() >= 3 + 8);
    forward.breaks_at = 30;
    CHECK_THROWS_AS(session.generate(Ids{1, 2}, sampler, {}), Error);
    CHECK(forward.tokens() == session.cached_ids());
    forward.breaks_at = SIZE_MAX;
    CHECK(session.generate(Ids{1, 2}, sampler, {.max_tokens = 3}).ids.size() == 3);
}

TEST_CASE("what may have been on a lost device drafts no more, wherever the device was lost; other drafts go on") {
    for (const bool survives : {false, true})
        for (const bool in_prefill : {false, true}) {
            CAPTURE(survives);
            CAPTURE(in_prefill);
            ToyForward forward(64);
            forward.set_max_sampled(0);
            forward.reopens = true;
            forward.lost_at = 1;
            forward.losses = in_prefill ? 1 : 0;
            Session session(forward);
            session.prefill(Ids{1, 2});
            forward.losses = in_prefill ? 0 : 1;
            forward.lost_at = 3;
            auto drafter = std::make_unique<ToyDrafter>();
            drafter->survives = survives;
            Speculation speculation(std::move(drafter), {.adaptive = false});
            GenerateOptions options{.max_tokens = 20};
            options.speculation = &speculation;
            const auto result = generate(session, {1, 2}, options);
            CHECK(forward.losses == 0);
            CHECK(result.ids.size() == 20);
            if (survives) CHECK(result.timings.drafted_tokens > 5);
            if (!survives && in_prefill) CHECK(result.timings.drafted_tokens == 0);
            if (!survives) CHECK(result.timings.drafted_tokens < 16);
        }
}
