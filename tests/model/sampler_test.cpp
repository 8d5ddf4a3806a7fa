// The sampler against exact probabilities, hand-computed penalties and hostile logits.
#include "base/error.h"
#include "model/engine/sampling/sampler.h"
#include <algorithm>
#include <cmath>
#include <doctest/doctest.h>
#include <limits>
#include <map>
#include <numeric>

using namespace tq;

namespace {

SamplerOptions plain() {
    SamplerOptions options;
    options.temperature = 1;
    options.top_k = 0;
    options.top_p = 1;
    return options;
}

// The distribution itself, by the definition in sampler.h, with full sorts and no shortcuts.
std::map<uint32_t, double> exact(const std::vector<float>& logits, const SamplerOptions& o) {
    std::vector<uint32_t> ids(logits.size());
    std::iota(ids.begin(), ids.end(), 0);
    std::stable_sort(ids.begin(), ids.end(), [&](uint32_t a, uint32_t b) { return logits[a] > logits[b]; });
    if (o.top_k > 0 && o.top_k < ids.size()) ids.resize(o.top_k);
    const auto softmax = [&] {
        std::vector<double> p;
        for (const uint32_t id : ids)
            p.push_back(std::exp((double(logits[id]) - double(logits[ids[0]])) / double(o.temperature)));
        const double sum = std::accumulate(p.begin(), p.end(), 0.0);
        for (double& x : p) x /= sum;
        return p;
    };
    auto p = softmax();
    double sum = 0;
    size_t n = 0;
    while (n < ids.size() && (n == 0 || sum < double(o.top_p))) sum += p[n++];
    if (o.top_p < 1) ids.resize(n);
    p = softmax();
    while (p.back() < double(o.min_p) * p[0]) p.pop_back();
    ids.resize(p.size());
    p = softmax();
    std::map<uint32_t, double> result;
    for (size_t i = 0; i < ids.size(); ++i) result[ids[i]] = p[i];
    return result;
}

// Pearson's statistic of `samples` samples per degree of freedom, near 1, minus what four standard deviations allow: below 0.
// Cells with fewer than 5 expected samples are pooled. Also requires that nothing outside the distribution is ever sampled.
double excess(const std::vector<float>& logits, const SamplerOptions& options, uint32_t samples) {
    const auto expected = exact(logits, options);
    Sampler sampler(options);
    std::map<uint32_t, uint32_t> counts;
    for (uint32_t i = 0; i < samples; ++i) ++counts[sampler.sample(logits)];
    for (const auto& [id, count] : counts) REQUIRE(expected.count(id) == 1);
    double statistic = 0, rare_expected = 0, rare_count = 0;
    int cells = 0;
    const auto add = [&](double count, double mean) {
        statistic += (count - mean) * (count - mean) / mean;
        ++cells;
    };
    for (const auto& [id, p] : expected) {
        const bool rare = p * samples < 5;
        if (!rare) add(counts[id], p * samples);
        rare_expected += rare ? p * samples : 0;
        rare_count += rare ? counts[id] : 0;
    }
    if (rare_expected > 0) add(rare_count, rare_expected);
    const double freedom = std::max(1, cells - 1);
    return statistic / freedom - 1 - 4 * std::sqrt(2 / freedom);
}

std::vector<float> toy_logits(uint32_t n) {
    std::vector<float> logits(n);
    for (uint32_t i = 0; i < n; ++i) logits[i] = 2.5f * std::sin(float(i) * 1.7f);
    return logits;
}

uint32_t greedy(const SamplerOptions& base, std::vector<float> logits, std::vector<uint32_t> ids, size_t answer_begin) {
    SamplerOptions options = base;
    options.temperature = 0;
    return Sampler(options).sample(logits, ids, answer_begin);
}

} // namespace

TEST_CASE("frequencies follow the exact distribution") {
    const auto logits = toy_logits(40);
    const auto check = [&](auto change, size_t support) {
        SamplerOptions options = plain();
        options.seed = 7;
        change(options);
        CHECK(exact(logits, options).size() == support);
        CHECK(excess(logits, options, 50000) < 0);
    };
    check([](auto&) {}, 40);
    check([](auto& o) { o.temperature = 2.5f; }, 40);
    check([](auto& o) { o.temperature = 0.4f; }, 40);
    check([](auto& o) { o.top_k = 5; }, 5);
    check([](auto& o) { o.top_k = 1000; }, 40);
    check([](auto& o) { o.top_p = 0.5f; }, 6);
    check([](auto& o) { o.top_p = 0; }, 1);
    check([](auto& o) { o.min_p = 0.2f; }, 16);
    check([](auto& o) { o.temperature = 0.6f, o.top_k = 20, o.top_p = 0.95f; }, 13);
    check([](auto& o) { o.temperature = 3, o.top_k = 12, o.top_p = 0.9f, o.min_p = 0.7f; }, 11);
}

TEST_CASE("a sample from few candidates follows the exact distribution, whatever the options") {
    const auto logits = toy_logits(90);
    const auto check = [&](auto change) {
        SamplerOptions options = plain();
        options.top_k = 64;
        change(options);
        for (const uint64_t seed : {1u, 2u, 3u}) {
            options.seed = seed;
            CAPTURE(seed);
            CHECK(excess(logits, options, 30000) < 0);
        }
    };
    check([](auto&) {});
    check([](auto& o) { o.temperature = 100; });
    check([](auto& o) { o.temperature = 0.2f; });
    check([](auto& o) { o.top_k = 2; });
    check([](auto& o) { o.top_p = 0.9f; });
    check([](auto& o) { o.min_p = 0.3f; });
    check([](auto& o) { o.top_k = 20, o.top_p = 0.8f, o.temperature = 0.7f; });
    check([](auto& o) { o.top_k = 33, o.top_p = 0.97f, o.min_p = 0.01f, o.temperature = 1.3f; });
}

TEST_CASE("weights are exp to the last unit, and never rise as the logit falls") {
    uint32_t before = sampling_weight(0, 0, 1);
    CHECK(before == 1 << 24);
    for (int i = 0; i < 2000000; ++i) {
        const float x = -float(i) * 1e-5f, inverse = i % 2 == 0 ? 1.0f : 4.0f;
        const uint32_t weight = sampling_weight(3 + x / inverse, 3, inverse);
        const double exact = std::exp((double(3 + x / inverse) - 3) * double(inverse)) * 0x1p24;
        REQUIRE(std::fabs(weight - exact) <= std::max(1.0, exact * 6e-7));
        if (inverse != 1) continue;
        REQUIRE(weight <= before);
        before = weight;
    }
    CHECK(sampling_weight(-3.4e38f, 3.4e38f, 1e-2f) == 0); // the difference overflows
    CHECK(sampling_weight(-1e-40f, 0, make_sampling_settings(2, 1e-45f, 1, 0).inverse_temperature) == 1 << 24);
    CHECK(sampling_weight(5, 5, make_sampling_settings(2, 1e-45f, 1, 0).inverse_temperature) == 1 << 24);
}

TEST_CASE("a sample from few candidates, by hand") {
    const std::vector<uint32_t> weights{1 << 24, 1 << 23, 1 << 22, 1 << 22}; // of mass 2^25
    const auto counts = [&](float top_p, float min_p) {
        std::vector<int> hits(weights.size());
        for (uint32_t i = 0; i < 256; ++i) ++hits[sampled_index(weights, make_sampling_settings(4, 1, top_p, min_p), i << 24)];
        return hits;
    };
    using Hits = std::vector<int>;
    CHECK(counts(1, 0) == Hits{128, 64, 32, 32});
    CHECK(counts(0.5f, 0) == Hits{256, 0, 0, 0}); // exactly top_p is enough
    CHECK(counts(0.500001f, 0) == Hits{171, 85, 0, 0});
    CHECK(counts(0, 0) == Hits{256, 0, 0, 0});
    CHECK(counts(1e-30f, 0) == Hits{256, 0, 0, 0});
    CHECK(counts(1, 0.25f) == Hits{128, 64, 32, 32}); // exactly min_p is kept
    CHECK(counts(1, 0.2500001f) == Hits{171, 85, 0, 0});
    CHECK(counts(1, 1) == Hits{256, 0, 0, 0});
    const sampling_settings all = make_sampling_settings(4, 1, 1, 0);
    CHECK(sampled_index(weights, all, 0) == 0);
    CHECK(sampled_index(weights, all, UINT32_MAX) == 3);
    CHECK(sampled_index(std::vector<uint32_t>{1 << 24}, all, UINT32_MAX) == 0);
    CHECK(sampled_index(std::vector<uint32_t>{1 << 24, 0, 0}, all, UINT32_MAX) == 0); // too unlikely to be sampled
    CHECK(sampled_index(std::vector<uint32_t>(64, 1 << 24), all, UINT32_MAX) == 63);  // the greatest possible mass
}

TEST_CASE("of ties at the end of the candidates the lower ids are sampled") {
    SamplerOptions options = plain();
    options.top_k = 3;
    Sampler sampler(options);
    std::map<uint32_t, int> seen;
    for (int i = 0; i < 200; ++i) ++seen[sampler.sample(std::vector<float>{0, 1, -1, 1, -0.0f, 1, 1})];
    CHECK(seen.size() == 3);
    CHECK((seen.contains(1) && seen.contains(3) && seen.contains(5)));
    options.min_p = 1; // ties with the best are equally probable
    options.top_k = 20;
    Sampler strict(options);
    seen.clear();
    for (int i = 0; i < 200; ++i) ++seen[strict.sample(std::vector<float>{0, 1, -1, 1, 0.99f, 1})];
    CHECK(seen.size() == 3);
}

TEST_CASE("a device can sample where an id is left") {
    const auto fits = [](auto change, const std::vector<bool>& excluded = {}) {
        SamplerOptions options;
        change(options);
        return Sampler(options, excluded).fits_device();
    };
    CHECK(fits([](auto&) {}));
    CHECK(fits([](auto& o) { o.top_k = 64; }));
    CHECK(fits([](auto& o) { o.top_k = 0, o.temperature = 0; }));
    CHECK(fits([](auto&) {}, {true, false}));
    CHECK(fits([](auto& o) { o.top_k = 65; }));
    CHECK(fits([](auto& o) { o.top_k = 0; }));
    CHECK(fits([](auto& o) { o.presence_penalty = 1, o.frequency_penalty = -1, o.repeat_penalty = 1.1f; }));
    CHECK_FALSE(fits([](auto&) {}, {true, true}));
}

TEST_CASE("what a device takes is what sample() would use, and is used up when it says so") {
    SamplerOptions options = plain();
    options.top_k = 20;
    options.seed = 3;
    std::vector<bool> excluded(70);
    excluded[1] = excluded[40] = excluded[69] = true;
    Sampler sampler(options, excluded);
    const DeviceSampling sampling = sampler.device_sampling(3);
    CHECK(std::vector(sampling.excluded.begin(), sampling.excluded.end()) == std::vector<uint32_t>{2, 1 << 8, 1 << 5});
    Random random(3);
    for (const uint32_t word : sampling.random) CHECK(word == uint32_t(random.next() >> 32));
    CHECK(sampler.device_sampling(3).random == sampling.random); // the call itself changes nothing
    sampler.sampled(1);
    CHECK(sampler.device_sampling(1).random[0] == sampling.random[1]);
    sampler.sample(toy_logits(70));
    CHECK(sampler.device_sampling(1).random[0] == sampling.random[2]);
    options.temperature = 0; // greedy sampling uses none
    Sampler greedy(options);
    greedy.sampled(5);
    CHECK(greedy.device_sampling(1).settings.candidates == 1);
}

TEST_CASE("a device gets the uses of the answer's tokens, of recent ones, and of no others") {
    const std::vector<uint32_t> ids{7, 3, 3, 5, 4, 5, 9};
    const auto used = [&](auto change) {
        SamplerOptions options;
        change(options);
        std::map<uint32_t, std::pair<uint32_t, uint32_t>> out; // count, end
        for (const auto& [id, use] : Sampler(options).device_sampling(1, ids, 3).used) out[id] = {use.count, use.end};
        return out;
    };
    using Used = std::map<uint32_t, std::pair<uint32_t, uint32_t>>;
    CHECK(used([](auto&) {}) == Used{});
    CHECK(used([](auto& o) { o.presence_penalty = 1; }) == Used{{5, {2, 6}}, {4, {1, 5}}, {9, {1, 7}}});
    CHECK(used([](auto& o) { o.repeat_penalty = 2, o.repeat_last_n = 5; }) ==
          Used{{3, {0, 3}}, {5, {0, 6}}, {4, {0, 5}}, {9, {0, 7}}});
    CHECK(used([](auto& o) { o.frequency_penalty = 1, o.repeat_penalty = 2, o.repeat_last_n = UINT32_MAX; }) ==
          Used{{7, {0, 1}}, {3, {0, 3}}, {5, {2, 6}}, {4, {1, 5}}, {9, {1, 7}}});
}

TEST_CASE("temperature comes before top-p") {
    // p = 1/2, 1/4, 1/8, 1/8 at temperature 1; at temperature 1/2: 16/22, 4/22, 1/22, 1/22.
    const std::vector<float> logits{std::log(4.f), std::log(2.f), 0, 0};
    SamplerOptions options = plain();
    options.top_p = 0.7f;
    options.temperature = 0.5f;
    Sampler sampler(options);
    for (int i = 0; i < 1000; ++i) REQUIRE(sampler.sample(logits) == 0); // at temperature 1 the nucleus would hold two
}

TEST_CASE("a nucleus wider than the first ordered block is exact") {
    std::vector<float> logits(5000);
    for (uint32_t i = 0; i < logits.size(); ++i) logits[i] = float((i * 2654435761u) % 5000) / 5000;
    SamplerOptions options = plain();
    options.top_p = 0.5f;
    const auto expected = exact(logits, options);
    REQUIRE(expected.size() > 1000);
    Sampler sampler(options);
    std::map<uint32_t, uint32_t> counts;
    for (int i = 0; i < 3000; ++i) ++counts[sampler.sample(logits)];
    for (const auto& [id, count] : counts) REQUIRE(expected.count(id) == 1);
    CHECK(counts.size() > expected.size() / 2);
}

TEST_CASE("greedy takes the greatest, the lower id on a tie") {
    for (const bool by_temperature : {true, false}) {
        SamplerOptions options = plain();
        if (by_temperature)
            options.temperature = 0;
        else
            options.top_k = 1;
        CHECK(Sampler(options).sample(std::vector<float>{1, 3, 2}) == 1);
        CHECK(Sampler(options).sample(std::vector<float>{1, 3, 3}) == 1);
        CHECK(Sampler(options).sample(std::vector<float>{-3e38f, -3.1e38f}) == 0);
    }
}

TEST_CASE("the seed decides") {
    const auto logits = toy_logits(1000);
    const auto sampling = [&](uint64_t seed) {
        SamplerOptions options = plain();
        options.seed = seed;
        Sampler sampler(options);
        std::vector<uint32_t> ids;
        for (int i = 0; i < 50; ++i) ids.push_back(sampler.sample(logits));
        return ids;
    };
    CHECK(sampling(1) == sampling(1));
    CHECK(sampling(1) != sampling(2));
    Random random(1234567);
    CHECK(random.next() == 6457827717110365317u); // SplitMix64's published test vector
    CHECK(random.next() == 3203168211198807973u);
    CHECK(random.next() == 9817491932198370423u);
}

TEST_CASE("penalties, by hand") {
    SamplerOptions options = plain();
    SUBCASE("repeat: positive logits shrink, negative ones grow more negative") {
        options.repeat_penalty = 2;
        CHECK(greedy(options, {4, 3}, {0}, 0) == 1);          // 4/2 < 3
        CHECK(greedy(options, {4, 1.9f}, {0, 0, 0}, 0) == 0); // once, however often it came
        CHECK(greedy(options, {-1, -1.5f}, {0}, 0) == 1);     // -1*2 < -1.5
        CHECK(greedy(options, {4, 3}, {0}, 1) == 1);          // the prompt counts too
    }
    SUBCASE("repeat looks back only so far") {
        options.repeat_penalty = 2;
        options.repeat_last_n = 2;
        CHECK(greedy(options, {4, 3, 0}, {0, 2, 2}, 0) == 0);
        CHECK(greedy(options, {4, 3, 0}, {2, 0, 2}, 0) == 1);
        options.repeat_last_n = 0;
        CHECK(greedy(options, {4, 3, 0}, {0, 0, 0}, 0) == 0);
    }
    SUBCASE("presence counts once, in the answer alone") {
        options.presence_penalty = 1.5f;
        CHECK(greedy(options, {4, 3}, {0, 0}, 0) == 1);
        CHECK(greedy(options, {4, 2.4f}, {0, 0}, 0) == 0);
        CHECK(greedy(options, {4, 3}, {0, 0}, 2) == 0);
    }
    SUBCASE("frequency counts every time") {
        options.frequency_penalty = 0.6f;
        CHECK(greedy(options, {4, 3}, {0}, 0) == 0);
        CHECK(greedy(options, {4, 3}, {0, 0}, 0) == 1);
    }
    SUBCASE("a negative penalty favours what was there") {
        options.presence_penalty = -2;
        CHECK(greedy(options, {2, 3}, {0}, 0) == 0);
    }
    SUBCASE("logits stay finite, and ids beyond the vocabulary are ignored") {
        options.repeat_penalty = 0.01f;
        CHECK(greedy(options, {3e38f, 3.1e38f}, {0, 4000000000u}, 0) == 0);
    }
}

TEST_CASE("excluded ids are never sampled") {
    std::vector<bool> excluded(40);
    for (size_t i = 0; i < excluded.size(); i += 2) excluded[i] = true;
    Sampler sampler(plain(), excluded);
    const auto logits = toy_logits(40);
    for (int i = 0; i < 2000; ++i) REQUIRE(sampler.sample(logits) % 2 == 1);
    CHECK_THROWS_AS(Sampler(plain(), std::vector<bool>(4, true)).sample(std::vector<float>(4)), Error);
}

TEST_CASE("what is not a number is an error") {
    for (const float bad : {NAN, INFINITY, -INFINITY}) {
        Sampler sampler(plain());
        CHECK_THROWS_WITH_AS(sampler.sample(std::vector<float>{0, bad}), doctest::Contains("token 1"), Error);
    }
    const auto rejected = [](auto change) {
        SamplerOptions options;
        change(options);
        CHECK_THROWS_AS(Sampler{options}, Error);
    };
    rejected([](auto& o) { o.temperature = -1; });
    rejected([](auto& o) { o.temperature = NAN; });
    rejected([](auto& o) { o.top_p = 1.5f; });
    rejected([](auto& o) { o.min_p = -0.1f; });
    rejected([](auto& o) { o.repeat_penalty = 0; });
    rejected([](auto& o) { o.presence_penalty = INFINITY; });
}

TEST_CASE("Qwen's numbers") {
    CHECK(qwen_sampling(true).temperature == 0.6f);
    CHECK(qwen_sampling(true).top_p == 0.95f);
    CHECK(qwen_sampling(false).temperature == 0.7f);
    CHECK(qwen_sampling(false).top_p == 0.8f);
    CHECK(qwen_sampling(true).top_k == 20);
    CHECK(qwen_sampling(true).min_p == 0);
}
