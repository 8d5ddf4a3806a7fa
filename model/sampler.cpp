// Sampling: one pass over the vocabulary, then work on the few candidates that matter.
#include "model/sampler.h"
#include "base/ensure.h"
#include "base/error.h"
#include "model/text/tokenizer.h"
#include <algorithm>
#include <cfloat>
#include <cmath>

namespace tq {

SamplerOptions qwen_sampling(bool thinking) {
    SamplerOptions options;
    options.temperature = thinking ? 0.6f : 0.7f;
    options.top_p = thinking ? 0.95f : 0.8f;
    return options;
}

std::vector<bool> unsampled_ids(const Tokenizer& tokenizer, uint32_t vocab_size) {
    std::vector<bool> excluded(vocab_size);
    for (uint32_t id = 0; id < vocab_size; ++id) excluded[id] = id >= tokenizer.size() || tokenizer.is_unused(id);
    return excluded;
}

uint64_t Random::next() {
    uint64_t z = state_ += 0x9e3779b97f4a7c15;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return z ^ (z >> 31);
}

Sampler::Sampler(const SamplerOptions& options, std::vector<bool> excluded)
    : options_(options), excluded_(std::move(excluded)), random_(options.seed) {
    const auto within = [](const char* name, float value, float low, float high) {
        if (!(value >= low && value <= high)) fail("{} is {}: it must lie between {} and {}", name, value, low, high);
    };
    within("the temperature", options.temperature, 0, 100);
    within("top-p", options.top_p, 0, 1);
    within("min-p", options.min_p, 0, 1);
    within("the presence penalty", options.presence_penalty, -100, 100);
    within("the frequency penalty", options.frequency_penalty, -100, 100);
    within("the repeat penalty", options.repeat_penalty, 0.01f, 100);
}

uint32_t Sampler::sample(std::span<const float> logits, std::span<const uint32_t> ids, size_t answer_begin) {
    ENSURE(excluded_.empty() || excluded_.size() == logits.size(), "{} logits, {} ids", logits.size(), excluded_.size());
    ENSURE(answer_begin <= ids.size(), "answer begins at {} of {}", answer_begin, ids.size());
    logits_.assign(logits.begin(), logits.end());
    for (size_t id = 0; id < logits.size(); ++id)
        if (!std::isfinite(logits[id])) fail("the logit of token {} is {}: the model's output is not finite", id, logits[id]);
    penalise(ids, answer_begin);
    collect(logits_);
    if (candidates_.empty())
        fail("none of the {} tokens may be sampled: the vocabulary holds only unused entries", logits.size());

    const size_t kept = options_.top_k == 0 ? candidates_.size() : std::min<size_t>(options_.top_k, candidates_.size());
    if (options_.temperature == 0 || kept == 1) {
        order(1);
        return candidates_[0].id;
    }
    if (kept < candidates_.size()) order(kept);
    double mass = 0;
    for (size_t i = 0; i < kept; ++i) mass += weight(candidates_[i]);
    const size_t left = nucleus(kept, mass);
    return draw(left, mass);
}

// Each penalty once per distinct token: the repeat penalty over the recent ones, the other two over the answer.
void Sampler::penalise(std::span<const uint32_t> ids, size_t answer_begin) {
    const auto penalise_each = [&](std::span<const uint32_t> some, auto&& apply) {
        recent_.assign(some.begin(), some.end());
        std::sort(recent_.begin(), recent_.end());
        for (auto first = recent_.begin(); first != recent_.end();) {
            const auto last = std::upper_bound(first, recent_.end(), *first);
            if (*first < logits_.size()) {
                float& logit = logits_[*first];
                logit = std::clamp(apply(logit, float(last - first)), -FLT_MAX, FLT_MAX);
            }
            first = last;
        }
    };
    if (options_.repeat_penalty != 1) {
        const size_t n = std::min<size_t>(options_.repeat_last_n, ids.size());
        penalise_each(ids.last(n), [&](float logit, float) {
            return logit > 0 ? logit / options_.repeat_penalty : logit * options_.repeat_penalty;
        });
    }
    if (options_.presence_penalty != 0 || options_.frequency_penalty != 0)
        penalise_each(ids.subspan(answer_begin), [&](float logit, float count) {
            return logit - options_.presence_penalty - options_.frequency_penalty * count;
        });
}

void Sampler::collect(std::span<const float> logits) {
    candidates_.clear();
    ordered_ = 0;
    greatest_ = -INFINITY;
    for (uint32_t id = 0; id < logits.size(); ++id) {
        if (!excluded_.empty() && excluded_[id]) continue;
        candidates_.push_back({logits[id], id});
        greatest_ = std::max(greatest_, logits[id]);
    }
}

// Makes the first n candidates the n greatest, in descending order: a heap of n and one pass, never a sort of the rest.
void Sampler::order(size_t n) {
    if (n <= ordered_) return;
    const auto at = [&](size_t i) { return candidates_.begin() + ptrdiff_t(i); };
    std::partial_sort(at(ordered_), at(n), candidates_.end(), [](const Candidate& a, const Candidate& b) {
        return a.logit != b.logit ? a.logit > b.logit : a.id < b.id;
    });
    ordered_ = n;
}

// The probability of a candidate relative to the greatest.
double Sampler::weight(const Candidate& candidate) const {
    return std::exp((double(candidate.logit) - double(greatest_)) / double(options_.temperature));
}

// How many of the `kept` first candidates top-p and min-p leave; their mass replaces the mass of all kept.
size_t Sampler::nucleus(size_t kept, double& mass) {
    if (options_.top_p >= 1 && options_.min_p <= 0) return kept;
    const double wanted = options_.top_p >= 1 ? INFINITY : double(options_.top_p) * mass;
    double sum = 0;
    size_t n = 0;
    while (n < kept && (n == 0 || sum < wanted)) {
        if (n == ordered_) order(std::min(kept, std::max<size_t>(128, ordered_ * 4)));
        const double w = weight(candidates_[n]);
        if (n > 0 && w < double(options_.min_p)) break;
        sum += w;
        ++n;
    }
    mass = sum;
    return n;
}

uint32_t Sampler::draw(size_t kept, double mass) {
    const double target = random_.uniform() * mass;
    uint32_t chosen = candidates_[0].id;
    double sum = 0;
    for (size_t i = 0; i < kept && sum <= target; ++i) {
        const double w = weight(candidates_[i]);
        if (w > 0) chosen = candidates_[i].id;
        sum += w;
    }
    return chosen;
}

} // namespace tq
