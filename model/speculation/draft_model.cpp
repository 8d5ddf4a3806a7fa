#include "model/speculation/draft_model.h"
#include <algorithm>
#include <cmath>

namespace tq {
namespace {

Sampler greedy(const std::vector<bool>& excluded) {
    SamplerOptions options;
    options.temperature = 0;
    return Sampler(options, excluded);
}

} // namespace

double largest_probability(std::span<const float> logits) {
    const float largest = std::ranges::max(logits);
    double sum = 0;
    for (const float logit : logits)
        if (logit > largest - 16) sum += std::exp(double(logit - largest)); // others add less than 1e-7 each
    return 1 / sum;
}

DraftModel::DraftModel(std::unique_ptr<Forward> forward, const std::vector<bool>& excluded, double min_confidence)
    : forward_(std::move(forward)), min_confidence_(min_confidence), sampler_(greedy(excluded)) {}

// Keeps those tokens in the cache that `ids` begins with, but at most `kept`. Returns whether the rest of them has room.
bool DraftModel::rewind(std::span<const uint32_t> ids, size_t kept) {
    const auto same = size_t(std::mismatch(ids_.begin(), ids_.end(), ids.begin(), ids.end()).first - ids_.begin());
    ids_.resize(std::min(same, kept));
    if (forward_->position() > ids_.size()) forward_->truncate(uint32_t(ids_.size()));
    return ids.size() - ids_.size() <= forward_->cache().room(0);
}

// Runs those of `ids` that are not in the cache, at least one. Returns the logits that follow; none where `progress` stopped it.
std::span<const float> DraftModel::run_rest(std::span<const uint32_t> ids, const Progress& progress) {
    const auto logits = forward_->run(ids.subspan(ids_.size()), progress);
    const auto cached = ids.first(forward_->position());
    ids_.assign(cached.begin(), cached.end());
    return logits;
}

bool DraftModel::read(std::span<const uint32_t> prompt, const Progress& progress) {
    if (!rewind(prompt, prompt.size()) || ids_.size() == prompt.size()) return true;
    return !run_rest(prompt, progress).empty();
}

std::vector<uint32_t> DraftModel::most_probable(std::span<const float> logits, uint32_t most) {
    std::vector<uint32_t> out;
    double confidence = 1;
    while (out.size() < most) {
        confidence *= largest_probability(logits);
        if (confidence < min_confidence_) break;
        out.push_back(sampler_.sample(logits));
        if (out.size() == most) break;
        logits = forward_->run(std::span(&out.back(), 1));
        ids_.push_back(out.back());
    }
    return out;
}

// Runs `id` too.
std::vector<uint32_t> DraftModel::sampled_on_device(uint32_t id, uint32_t most) {
    std::vector<uint32_t> out = forward_->run_sampled(id, most, sampler_.device_sampling(most));
    ids_.push_back(id);
    ids_.insert(ids_.end(), out.begin(), out.end());
    ids_.resize(forward_->position()); // the last that it proposes has not been run
    return out;
}

Draft DraftModel::draft(std::span<const uint32_t> ids, uint32_t most) {
    const bool on_device = forward_->max_sampled() > 0 && sampler_.fits_device();
    most = std::min(most, on_device ? forward_->max_sampled() : max_draft_tokens);
    if (most == 0 || ids.size() + most > forward_->context_size() || !rewind(ids, ids.size() - 1)) return {};
    try {
        if (!on_device) return {most_probable(run_rest(ids, {}), most)};
        const auto before = ids.first(ids.size() - 1);
        if (ids_.size() < before.size()) run_rest(before, {});
        return {sampled_on_device(ids.back(), most)};
    } catch (const OutOfMemory&) { // nothing has been run
        return {};
    }
}

} // namespace tq
