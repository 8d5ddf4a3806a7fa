// Sampling: a few passes over the vocabulary, of one comparison for each id, then work on the few candidates that matter. A logit
// that is too far below the greatest one has no weight, and is no candidate. collect() keeps a buffer of twice as many candidates
// as are wanted, and halves it when it is full. From then on the smallest kept candidate is the threshold.
// Top-p does not sort the candidates. order() sorts as many as the nucleus has turned out to need so far, four times as many
// each time, because most nuclei are small.
// Tokens are those that a device would sample, bit for bit: weights are integers, sums are exact, and both take the same
// random words in the same order (device_sampling.h). So host and device may each sample any token, and a device may run ahead:
// device_sampling() gives it the words that are next, and sampled() moves on by as many as were used. With a constraint only
// the host can sample, because the allowed ids depend on the token before.
#include "model/engine/sampling/sampler.h"
#include "base/ensure.h"
#include "base/error.h"
#include "base/statistics.h"
#include "model/text/tokenizer.h"
#include <algorithm>
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

Sampler::Sampler(const SamplerOptions& options, const std::vector<bool>& excluded)
    : options_(options), excluded_bits_((excluded.size() + 31) / 32), excluded_size_(excluded.size()), random_(options.seed) {
    for (uint32_t id = 0; id < excluded.size(); ++id) {
        if (!excluded[id]) continue;
        excluded_.push_back(id);
        excluded_bits_[id / 32] |= 1u << id % 32;
    }
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
    ENSURE(excluded_size_ == 0 || excluded_size_ == logits.size(), "{} logits, {} ids", logits.size(), excluded_size_);
    ENSURE(answer_begin <= ids.size(), "answer begins at {} of {}", answer_begin, ids.size());
    load(logits);
    penalise(ids, answer_begin);
    for (const uint32_t id : excluded_) logits_[id] = -INFINITY;
    if (constraint_) constraint_->apply(logits_);
    const uint32_t id = choose();
    if (constraint_) constraint_->accept(id);
    return id;
}

uint32_t Sampler::choose() {
    max_logit_ = greatest(logits_);
    const bool none = max_logit_ == -INFINITY;
    if (none && constraint_)
        fail("none of the {} tokens continues what the grammar has read: it asks for characters that this model cannot write, or "
             "for an end where tokens that end an answer are left out",
             logits_.size());
    if (none) fail("none of the {} tokens may be sampled: the vocabulary holds only unused entries", logits_.size());
    if (greedy()) return argmax(logits_);
    collect(options_.top_k == 0 ? logits_.size() : options_.top_k);
    return has_few_candidates(settings(0)) ? sample_few() : sample_many();
}

void Sampler::load(std::span<const float> logits) {
    logits_.assign(logits.begin(), logits.end());
    if (all_finite(logits_)) return;
    const auto bad = std::find_if(logits_.begin(), logits_.end(), [](float x) { return !std::isfinite(x); });
    fail("the logit of token {} is {}: the model's output is not finite: tq-run validate finds the layer, tq-run conformance "
         "the kernel",
         bad - logits_.begin(), *bad);
}

// Returns the uses of the tokens that a penalty applies to: those of the answer, and recent ones.
std::vector<UsedToken> Sampler::uses(std::span<const uint32_t> ids, size_t answer_begin) const {
    if (!penalises()) return {};
    const bool in_answer = options_.presence_penalty != 0 || options_.frequency_penalty != 0;
    const size_t recent = options_.repeat_penalty == 1 ? 0 : std::min<size_t>(options_.repeat_last_n, ids.size());
    std::vector<UsedToken> all;
    for (size_t i = std::min(in_answer ? answer_begin : ids.size(), ids.size() - recent); i < ids.size(); ++i)
        all.push_back({ids[i], {uint32_t(in_answer && i >= answer_begin), uint32_t(i + 1)}});
    std::ranges::stable_sort(all, {}, &UsedToken::id);
    std::vector<UsedToken> used;
    for (const UsedToken& one : all) {
        if (used.empty() || used.back().id != one.id) used.push_back({one.id, {}});
        used.back().use.count += one.use.count;
        used.back().use.end = one.use.end;
    }
    return used;
}

// Returns the settings for the token at index `next`.
sampling_settings Sampler::settings(size_t next) const {
    const SamplerOptions& o = options_;
    sampling_settings settings =
        greedy() ? make_sampling_settings(1, 1, 1, 0) : make_sampling_settings(o.top_k, o.temperature, o.top_p, o.min_p);
    if (penalises()) set_penalties(settings, {o.presence_penalty, o.frequency_penalty, o.repeat_penalty, o.repeat_last_n}, next);
    return settings;
}

void Sampler::penalise(std::span<const uint32_t> ids, size_t answer_begin) {
    if (!penalises()) return;
    const sampling_settings penalties = settings(ids.size());
    for (const auto& [id, use] : uses(ids, answer_begin))
        if (id < logits_.size()) logits_[id] = penalised_logit(logits_[id], penalties, use);
}

bool Sampler::precedes(const Candidate& a, const Candidate& b) { return a.logit != b.logit ? a.logit > b.logit : a.id < b.id; }

// Collects the `max` greatest logits, in no order, without those that sampling_weight() gives no weight: it does from 18 below
// the greatest one on, by its own rounding.
void Sampler::collect(size_t max) {
    max = std::min(max, logits_.size());
    const size_t room = std::max<size_t>(2 * max, 256);
    const auto last = [&] { return candidates_.begin() + ptrdiff_t(max) - 1; };
    const auto shrink = [&] {
        std::nth_element(candidates_.begin(), last(), candidates_.end(), precedes);
        candidates_.resize(max);
    };
    candidates_.clear();
    ordered_ = 0;
    float threshold = std::min(max_logit_ - 18.5f / settings(0).inverse_temperature, std::nextafter(max_logit_, -INFINITY));
    each_passing(
        logits_, [&](float x) { return x > threshold; },
        [&](uint32_t id) {
            candidates_.push_back({logits_[id], id});
            if (candidates_.size() < room) return;
            shrink();
            threshold = candidates_.back().logit;
        });
    if (candidates_.size() > max) shrink();
}

// Puts the n greatest candidates first, in descending order.
void Sampler::order(size_t n) {
    const auto at = [&](size_t i) { return candidates_.begin() + ptrdiff_t(i); };
    if (n < candidates_.size()) std::nth_element(at(ordered_), at(n), candidates_.end(), precedes);
    std::sort(at(ordered_), at(n), precedes);
    ordered_ = n;
}

// Samples like a device, bit for bit (model/engine/sampling/device_sampling.h).
uint32_t Sampler::sample_few() {
    order(candidates_.size());
    const sampling_settings settings = this->settings(0);
    uint32_t weights[SAMPLING_CANDIDATES];
    for (size_t i = 0; i < candidates_.size(); ++i)
        weights[i] = sampling_weight(candidates_[i].logit, candidates_[0].logit, settings.inverse_temperature);
    return candidates_[sampled_index({weights, candidates_.size()}, settings, random_.word())].id;
}

// Keeps the fewest candidates whose weights sum to at least `wanted`: a part of those collected, most often a small one.
void Sampler::keep_nucleus(uint64_t min_mass, float inverse_temperature) {
    uint64_t mass = 0;
    size_t kept = 0;
    while (kept < candidates_.size() && (kept == 0 || mass < min_mass)) {
        if (kept == ordered_) order(std::min(candidates_.size(), std::max<size_t>(128, ordered_ * 4)));
        mass += sampling_weight(candidates_[kept++].logit, max_logit_, inverse_temperature);
    }
    candidates_.resize(kept);
}

// Samples from more than a few candidates, by the same rule.
uint32_t Sampler::sample_many() {
    const sampling_settings settings = this->settings(0);
    const auto weight = [&](const Candidate& one) {
        return sampling_weight(one.logit, max_logit_, settings.inverse_temperature);
    };
    if (settings.top_p != UINT32_MAX) {
        uint64_t sum = 0;
        for (const Candidate& one : candidates_) sum += weight(one);
        keep_nucleus(fraction_of(sum, settings.top_p, true), settings.inverse_temperature);
    }
    std::vector<Weighed> kept;
    for (const Candidate& one : candidates_)
        if (const uint32_t w = weight(one); w != 0 && w >= settings.min_p) kept.push_back({one.id, w});
    std::ranges::sort(kept, {}, &Weighed::id);
    return sampled_id(kept, random_.word());
}

bool Sampler::fits_device() const { return !constraint_ && (excluded_size_ == 0 || excluded_.size() < excluded_size_); }

DeviceSampling Sampler::device_sampling(uint32_t n, std::span<const uint32_t> ids, size_t answer_begin) const {
    ENSURE(fits_device(), "all of {} ids are excluded", excluded_size_);
    ENSURE(answer_begin <= ids.size(), "answer begins at {} of {}", answer_begin, ids.size());
    DeviceSampling sampling{settings(ids.size()), {}, excluded_bits_, uses(ids, answer_begin)};
    Random random = random_;
    while (sampling.random.size() < n) sampling.random.push_back(greedy() ? 0 : random.word());
    return sampling;
}

void Sampler::sampled(uint32_t n) {
    for (uint32_t i = 0; i < n && !greedy(); ++i) random_.next(); // greedy samples nothing
}

} // namespace tq
