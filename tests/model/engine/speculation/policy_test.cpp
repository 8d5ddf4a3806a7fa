// When drafts are verified: in simulated runs, whose costs and shares of right tokens are known.
#include "model/engine/speculation/policy.h"
#include <algorithm>
#include <doctest/doctest.h>
#include <functional>
#include <numeric>
#include <random>
#include <utility>

using namespace tq;

namespace {

struct Device {
    double per_row;        // the cost of one more row, of a pass without drafts
    double draft_cost = 0; // of a drafted token
    double noise = 0;      // the greatest share by which a time is longer
    double stalls = 0;     // the share of passes that take 20 times as long
    uint32_t streams = 1;
};

struct Run {
    double plain = 0, drafting = 0; // time
    uint32_t drafted = 0, drafts = 0;
    double gain() const { return plain / drafting; }
};

// `right(t)`: the share of right tokens at token t of each stream, on average.
Run simulate(const Device& device, uint32_t tokens, const std::function<double(uint32_t)>& right) {
    constexpr double token_ns = 1e6;
    std::mt19937 random(1);
    const auto chance = [&](double p) { return random() % 10000 < p * 10000; };
    double stalled = 0;
    const auto noisy = [&](double ns) {
        if (chance(device.stalls)) stalled += 19 * ns;
        return ns * (1 + device.noise * double(random() % 1000) / 1000) + std::exchange(stalled, 0);
    };
    SpeculationPolicy policy({0.7});
    Run run;
    for (double t = 0; t < tokens;) {
        policy.begin(device.streams);
        std::vector<uint32_t> lengths(device.streams);
        for (uint32_t& length : lengths) length = policy.length(0, 7);
        const uint32_t drafted = std::accumulate(lengths.begin(), lengths.end(), 0u), k = std::ranges::max(lengths);
        if (k == 0) {
            const double ns = noisy(token_ns);
            policy.ran_plain(1, ns);
            run.drafting += ns;
            t++;
            continue;
        }
        uint32_t accepted = 0;
        for (const uint32_t length : lengths) {
            uint32_t n = 0;
            while (n < length && chance(right(uint32_t(t)))) n++;
            if (length > 0) policy.resolved(0, n + (n < length ? 1 : 0), n);
            accepted += n;
        }
        const double draft_ns = k * device.draft_cost * token_ns;
        const double ns = noisy(token_ns * (1 + device.per_row * drafted) + draft_ns);
        policy.drafted(k, draft_ns);
        policy.verified(device.streams + drafted, device.streams + accepted, ns);
        run.drafting += ns;
        run.drafted += drafted;
        run.drafts++;
        t += 1 + double(accepted) / device.streams;
    }
    run.plain = tokens * token_ns * (1 + device.noise / 2);
    return run;
}

} // namespace

TEST_CASE("drafts that are mostly right are long and gain") {
    const Run run = simulate({.per_row = 0.15}, 400, [](uint32_t) { return 0.95; });
    CHECK(run.gain() > 2);
    CHECK(run.drafted > 5 * run.drafts);
    const Run with_model = simulate({.per_row = 0.1, .draft_cost = 0.1}, 400, [](uint32_t) { return 0.9; });
    CHECK(with_model.gain() > 1.5);
}

TEST_CASE("where several rows cost what as many passes do, nothing is lost by trying") {
    for (const double right : {0.0, 0.3, 0.6, 0.9})
        CHECK(simulate({.per_row = 1}, 400, [&](uint32_t) { return right; }).gain() > 0.97);
}

TEST_CASE("whatever the costs and the text, no more than 3 % of the time is lost") {
    for (const double per_row : {0.02, 0.1, 0.3, 0.6, 1.0, 2.0})
        for (const double draft_cost : {0.0, 0.1, 0.5, 1.5})
            for (const double right : {0.0, 0.1, 0.3, 0.5, 0.7, 0.9, 1.0})
                for (const double noise : {0.0, 0.3}) {
                    CAPTURE(per_row);
                    CAPTURE(draft_cost);
                    CAPTURE(right);
                    CAPTURE(noise);
                    CHECK(simulate({per_row, draft_cost, noise}, 1000, [&](uint32_t) { return right; }).gain() > 0.97);
                }
}

TEST_CASE("several streams are drafted where rows are cheap, and lose little where they are not") {
    CHECK(simulate({.per_row = 0.04, .streams = 3}, 400, [](uint32_t) { return 0.9; }).gain() > 1.6);
    CHECK(simulate({.per_row = 0.02, .draft_cost = 0.05, .streams = 5}, 400, [](uint32_t) { return 0.8; }).gain() > 1.4);
    CHECK(simulate({.per_row = 0.02, .streams = 16}, 400, [](uint32_t) { return 0.9; }).drafted == 0); // no rows are left
    for (const uint32_t streams : {2u, 4u, 8u, 15u})
        for (const double per_row : {0.02, 0.1, 0.3})
            for (const double draft_cost : {0.0, 0.1, 0.5})
                for (const double right : {0.0, 0.3, 0.6, 0.9}) {
                    CAPTURE(streams);
                    CAPTURE(per_row);
                    CAPTURE(draft_cost);
                    CAPTURE(right);
                    CHECK(simulate({per_row, draft_cost, 0.3, 0, streams}, 1000, [&](uint32_t) { return right; }).gain() > 0.97);
                }
}

TEST_CASE("drafts begin again where a text begins to repeat, and end where it ends") {
    const Run run = simulate({.per_row = 0.15}, 1200, [](uint32_t t) { return t / 200 % 2 == 1 ? 0.95 : 0.02; });
    CHECK(run.gain() > 1.15);
    CHECK(simulate({.per_row = 0.15}, 600, [](uint32_t) { return 0.02; }).drafts < 30);
}

TEST_CASE("nothing is drafted before a token's time is known, and that is measured again") {
    SpeculationPolicy policy({0.99});
    const auto length = [&](uint32_t max) {
        policy.begin(1);
        return policy.length(0, max);
    };
    CHECK(length(7) == 0);
    policy.ran_plain(1, 100);
    uint32_t passes = 0;
    while (length(7) > 0 && passes < 1000) {
        policy.verified(8, 8, 200);
        policy.resolved(0, 7, 7);
        passes++;
    }
    CHECK(passes > 10);
    CHECK(passes < 1000);
    policy.ran_plain(1, 100);
    CHECK(length(7) == 7);
    CHECK(length(2) == 2);
    CHECK(length(0) == 0);
}

TEST_CASE("beside a prompt, drafts that pay are made, and none is tried") {
    SpeculationPolicy good({0.99}), bad({0.01});
    const auto tries = [](SpeculationPolicy& policy, bool timed) {
        policy.begin(1, timed);
        return policy.length(0, 7);
    };
    CHECK(tries(good, false) == 0); // what a pass costs is not known
    for (SpeculationPolicy* policy : {&good, &bad})
        for (int i = 0; i < 100; i++) policy->ran_plain(1, 100);
    CHECK(tries(good, false) == 7);
    CHECK(tries(bad, false) == 0);
    CHECK(tries(bad, true) > 0);
}

TEST_CASE("the cost of rows is measured, interpolated and extrapolated") {
    SpeculationPolicy policy({0.5});
    policy.ran_plain(1, 100);
    CHECK(policy.cost(1) == 1);
    CHECK(policy.cost(5) > policy.cost(2)); // a guess
    for (int i = 0; i < 2; i++) policy.verified(3, 1, 120);
    for (int i = 0; i < 2; i++) policy.verified(7, 1, 200);
    CHECK(policy.cost(2) == doctest::Approx(1.1));
    CHECK(policy.cost(3) == doctest::Approx(1.2));
    CHECK(policy.cost(5) == doctest::Approx(1.6));
    CHECK(policy.cost(8) == doctest::Approx(2 + 1.0 / 6));
}

TEST_CASE("where passes are interrupted now and then, drafts still gain") {
    const Run quiet = simulate({.per_row = 0.15}, 400, [](uint32_t) { return 0.95; });
    const Run busy = simulate({.per_row = 0.15, .stalls = 0.05}, 400, [](uint32_t) { return 0.95; });
    CHECK(busy.drafted > quiet.drafted / 2);
}

TEST_CASE("one interrupted pass does not spoil an estimate") {
    SpeculationPolicy policy({0.5});
    for (int i = 0; i < 10; i++) policy.ran_plain(1, 100);
    for (int i = 0; i < 10; i++) policy.verified(2, 1, 110);
    policy.verified(2, 1, 11000);
    CHECK(policy.cost(2) < 1.3);
}
