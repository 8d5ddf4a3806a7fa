// A toy model whose next token is known, and which records every id that it is asked to run.
#pragma once
#include "base/error.h"
#include "model/forward.h"
#include <algorithm>
#include <doctest/doctest.h>
#include <functional>
#include <numeric>

namespace tq {

constexpr uint32_t vocab_size = 16;

using Ids = std::vector<uint32_t>;

// After the tokens a, b, c the best next one is (a + b + c + 1) % 16: it depends on the whole cache.
class ToyForward final : public Forward {
  public:
    explicit ToyForward(uint32_t context, uint32_t pages = UINT32_MAX)
        : cache_({.slots = 1, .pages = std::min(pages, pages_of(context)), .context_size = context}) {}

    using Forward::run;
    bool run(std::span<const Span> spans, const SpanLogits& each, const Progress& progress) override {
        REQUIRE((spans.size() == 1 && spans[0].slot == 0 && !spans[0].ids.empty()));
        const std::span ids = spans[0].ids;
        cache_.reserve(0, uint32_t(ids.size()));
        for (uint32_t done = 0; done < ids.size(); ++done) {
            if (done > 0 && progress && !progress(done, uint32_t(ids.size()))) return false;
            if (position() == breaks_at) fail("the device is lost");
            if (position() == lost_at && losses > 0 && losses--) throw DeviceLost("the device is lost");
            if (position() == full_at) fail_out_of_memory("no room for {} tokens", position() + 1);
            tokens_.resize(position());
            tokens_.push_back(ids[done]);
            cache_.advance(0, 1);
            ran.push_back(ids[done]);
            if (spans[0].logits != Span::Logits::all && done + 1 < ids.size()) continue;
            const uint32_t sum = std::accumulate(tokens_.begin(), tokens_.end(), 1u);
            logits_.assign(vocab_size, 0);
            logits_[sum % vocab_size] = 5;
            each(0, done, logits_);
        }
        return true;
    }
    bool reopen(const DeviceLost&) override {
        cache_.truncate(0, 0);
        return reopens;
    }
    std::vector<uint32_t> run_sampled(uint32_t slot, uint32_t id, uint32_t n, const DeviceSampling& sampling) override {
        REQUIRE((slot == 0 && n > 0 && n <= max_sampled() && sampling.random.size() == n));
        batches.push_back(n);
        std::vector<uint32_t> sampled, order(vocab_size);
        for (const uint32_t random : sampling.random) {
            const auto logits = run({&id, 1});
            std::iota(order.begin(), order.end(), 0);
            std::ranges::stable_sort(order, std::greater(), [&](uint32_t i) { return logits[i]; });
            std::vector<uint32_t> weights;
            for (uint32_t i = 0; i < sampling.settings.candidates && i < vocab_size; ++i)
                weights.push_back(sampling_weight(logits[order[i]], logits[order[0]], sampling.settings.inverse_temperature));
            sampled.push_back(id = order[sampled_index(weights, sampling.settings, random)]);
        }
        return sampled;
    }
    Cache& cache() override { return cache_; }
    const ForwardFacts& facts() const override { return facts_; }
    void set_max_sampled(uint32_t tokens) { facts_.max_sampled = tokens; }

    std::vector<uint32_t> take_ran() { return std::exchange(ran, {}); }
    Ids tokens() const { return {tokens_.begin(), tokens_.begin() + position()}; } // in the cache

    Ids ran;
    size_t breaks_at = SIZE_MAX, full_at = SIZE_MAX;
    size_t lost_at = SIZE_MAX, losses = 0;
    bool reopens = true;
    std::vector<uint32_t> batches;

  private:
    Cache cache_;
    ForwardFacts facts_{.kv = {}, .kv_bytes_per_token = 1, .max_separate_rows = 8};
    Ids tokens_;
    std::vector<float> logits_;
};

} // namespace tq
