// Drafts by a small model of its own, with a cache of its own that follows the target's slots. rewind() finds how much of a slot
// is still right, token by token, because the target has rejected some; missing tokens are run first. All slots' drafts are made
// together, one token of each in a pass.
// A draft ends if the product of the probabilities of its tokens falls below min_confidence_, since what follows an unlikely
// token is verified for nothing.
// The draft's sampler is greedy, whatever the target's is. That changes how many drafts are accepted, not the answer: the
// target samples every token itself.
#include "model/engine/speculation/draft_model.h"
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

double max_probability(std::span<const float> logits) {
    const float largest = std::ranges::max(logits);
    double sum = 0;
    for (const float logit : logits)
        if (logit > largest - 16) sum += std::exp(double(logit - largest)); // others add less than 1e-7 each
    return 1 / sum;
}

DraftModel::DraftModel(std::unique_ptr<Forward> forward, const std::vector<bool>& excluded, double min_confidence)
    : forward_(std::move(forward)), min_confidence_(min_confidence), sampler_(greedy(excluded)),
      ids_(forward_->cache().shape().slots) {}

// Keeps the tokens in the cache with which `ids` begins, but at most `kept`. Returns whether the rest of `ids` has room.
bool DraftModel::rewind(uint32_t slot, std::span<const uint32_t> ids, size_t kept) {
    Ids& cached = ids_[slot];
    const auto same = size_t(std::mismatch(cached.begin(), cached.end(), ids.begin(), ids.end()).first - cached.begin());
    cached.resize(std::min(same, kept));
    if (forward_->cache().position(slot) > cached.size()) forward_->cache().truncate(slot, uint32_t(cached.size()));
    return ids.size() - cached.size() <= forward_->cache().room(slot);
}

// Notes a run of the ids that were not in the cache.
void DraftModel::note_run(uint32_t slot, std::span<const uint32_t> ids) {
    const auto cached = ids.first(forward_->cache().position(slot));
    ids_[slot].assign(cached.begin(), cached.end());
}

bool DraftModel::read(uint32_t slot, std::span<const uint32_t> prompt, const Progress& progress) {
    if (slot >= ids_.size() || !rewind(slot, prompt, prompt.size()) || ids_[slot].size() == prompt.size()) return true;
    const Span rest{slot, prompt.subspan(ids_[slot].size()), Span::Logits::none};
    const bool whole = forward_->run(
        std::span(&rest, 1), [](size_t, uint32_t, std::span<const float>) {}, progress);
    note_run(slot, prompt);
    return whole;
}

// The draft ends if its confidence falls below min_confidence_.
void DraftModel::add(Making& draft, std::span<const float> logits) {
    draft.confidence *= max_probability(logits);
    draft.ended = draft.confidence < min_confidence_;
    if (!draft.ended) draft.out->ids.push_back(sampler_.sample(logits));
    draft.ended |= draft.out->ids.size() == draft.request->max_tokens;
}

// Runs the ids of each draft that the cache lacks, at least one per draft, and adds an id to each draft.
void DraftModel::run_step(std::span<Making> drafts) {
    std::vector<Ids> all;
    std::vector<Span> spans;
    all.reserve(drafts.size());
    for (const Making& draft : drafts) {
        Ids& ids = all.emplace_back(draft.request->ids.begin(), draft.request->ids.end());
        ids.insert(ids.end(), draft.out->ids.begin(), draft.out->ids.end());
        const uint32_t slot = draft.request->slot;
        spans.push_back({slot, std::span<const uint32_t>(ids).subspan(ids_[slot].size())});
    }
    forward_->run(spans, [&](size_t i, uint32_t, std::span<const float> logits) { add(drafts[i], logits); });
    for (size_t i = 0; i < drafts.size(); i++) note_run(drafts[i].request->slot, all[i]);
}

// Without the host between the tokens.
void DraftModel::sample_on_device(const DraftRequest& request, Ids& out) {
    const uint32_t slot = request.slot, max = std::min(request.max_tokens, forward_->max_sampled());
    read(slot, request.ids.first(request.ids.size() - 1), {});
    out = forward_->run_sampled(slot, request.ids.back(), max, sampler_.device_sampling(max));
    Ids& cached = ids_[slot];
    cached.push_back(request.ids.back());
    cached.insert(cached.end(), out.begin(), out.end());
    cached.resize(forward_->cache().position(slot)); // the last that it proposes has not been run
}

std::vector<Draft> DraftModel::draft(Forward&, std::span<const DraftRequest> requests) {
    std::vector<Draft> out(requests.size());
    std::vector<Making> making;
    for (size_t i = 0; i < requests.size(); i++) {
        const auto& [slot, ids, max] = requests[i];
        const bool fits = slot < ids_.size() && max > 0 && ids.size() + max <= forward_->context_size();
        if (fits && rewind(slot, ids, ids.size() - 1)) making.push_back({&requests[i], &out[i]});
    }
    const bool on_device = forward_->max_sampled() > 1 && sampler_.fits_device();
    try {
        if (on_device && making.size() == 1) {
            sample_on_device(*making[0].request, making[0].out->ids);
            return out;
        }
        for (; !making.empty(); std::erase_if(making, [](const Making& one) { return one.ended; })) run_step(making);
    } catch (const OutOfMemory&) { // of its own cache: what has been drafted stays
    } catch (const NonFinite&) {
    }
    return out;
}

} // namespace tq
