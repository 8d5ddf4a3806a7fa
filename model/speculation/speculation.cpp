#include "model/speculation/speculation.h"
#include "base/error.h"
#include <algorithm>
#include <chrono>

namespace tq {

Speculation::Speculation(std::unique_ptr<Drafter> drafter, const SpeculationOptions& options)
    : drafter_(std::move(drafter)), options_(options), policy_(drafter_->priors()) {
    if (options.draft_max == 0 || options.draft_max > max_draft_tokens)
        fail("drafts of up to {} tokens: at least 1 and at most {} can be verified", options.draft_max, max_draft_tokens);
    if (options.draft_min > options.draft_max)
        fail("drafts have at least {} tokens but at most {}: the first must not be the larger", options.draft_min,
             options.draft_max);
}

bool Speculation::begin(std::span<const uint32_t> prompt, const Progress& progress) {
    pending_ = {};
    return drafter_->read(prompt, progress);
}

// Counts the tokens of the pending draft that are right, when one was wrong or all are known.
void Speculation::resolve(std::span<const uint32_t> ids) {
    if (!pending_.any || ids.size() <= pending_.begin) return;
    const std::span now = ids.subspan(pending_.begin);
    const std::vector<uint32_t>& drafted = pending_.draft.ids;
    const auto right = uint32_t(std::mismatch(drafted.begin(), drafted.end(), now.begin(), now.end()).first - drafted.begin());
    const bool all = right == drafted.size(), wrong = !all && right < now.size();
    if (!all && !wrong) return;
    policy_.resolved(pending_.draft.kind, right + (wrong || pending_.ended ? 1 : 0), right);
    pending_.any = false;
}

uint32_t Speculation::length(uint32_t kind, uint32_t most) {
    const uint32_t chosen = options_.adaptive ? policy_.length(kind, most) : most;
    return chosen < options_.draft_min ? 0 : chosen;
}

std::vector<uint32_t> Speculation::draft(std::span<const uint32_t> ids, uint32_t most) {
    resolve(ids);
    most = std::min(most, options_.draft_max);
    const bool is_free = drafter_->is_free();
    uint32_t wanted = is_free && most > 0 ? max_draft_tokens : length(0, most);
    if (wanted == 0) return {};
    const auto start = std::chrono::steady_clock::now();
    Draft draft = drafter_->draft(ids, wanted);
    const std::chrono::duration<double, std::nano> took = std::chrono::steady_clock::now() - start;
    const bool ended = draft.ids.size() < wanted;
    if (is_free) wanted = draft.ids.empty() ? 0 : length(draft.kind, most);
    std::vector<uint32_t> out(draft.ids.begin(), draft.ids.begin() + std::min<ptrdiff_t>(wanted, std::ssize(draft.ids)));
    if (out.size() < options_.draft_min) out.clear();
    if (!is_free) {
        policy_.drafted(uint32_t(out.size()), took.count());
        wasted_ns_ = out.empty() ? took.count() : 0;
        if (draft.ids.empty()) policy_.resolved(draft.kind, 1, 0);
    }
    if (!draft.ids.empty() && (!out.empty() || !pending_.any)) pending_ = {std::move(draft), ids.size(), ended, true};
    return out;
}

void Speculation::ran_plain(uint32_t tokens, double ns) {
    policy_.ran_plain(tokens, std::max(ns - std::exchange(wasted_ns_, 0), 0.0));
}

} // namespace tq
