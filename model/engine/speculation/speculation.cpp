// Which drafts a pass verifies, and how long they are. Drafters are asked in order; the first that has something for a slot is
// taken. Drafters that cost nothing (n-grams) draft for all slots, and as long as possible, so that the policy learns whether
// they would have been right. Drafters that cost time (a model, a head) are asked for as many tokens as the policy expects to
// pay. Pending is the last draft of a slot. Once enough tokens are known, resolve() counts how many of it were right and tells
// the policy, also for drafts that were not verified.
// max_tokens of a Pass is a budget for all requests together: verified tokens are rows of one pass.
#include "model/engine/speculation/speculation.h"
#include "base/error.h"
#include <algorithm>
#include <chrono>
#include <fmt/format.h>

namespace tq {
namespace {

std::vector<double> priors_of(const std::vector<std::unique_ptr<Drafter>>& drafters) {
    std::vector<double> out;
    for (const auto& drafter : drafters) {
        const std::vector<double> more = drafter->priors();
        out.insert(out.end(), more.begin(), more.end());
    }
    return out;
}

std::vector<std::unique_ptr<Drafter>> only(std::unique_ptr<Drafter> drafter) {
    std::vector<std::unique_ptr<Drafter>> out;
    out.push_back(std::move(drafter));
    return out;
}

} // namespace

Speculation::Speculation(std::unique_ptr<Drafter> drafter, const SpeculationOptions& options)
    : Speculation(only(std::move(drafter)), options) {}

Speculation::Speculation(std::vector<std::unique_ptr<Drafter>> drafters, const SpeculationOptions& options)
    : options_(options), policy_(priors_of(drafters)) {
    uint32_t kinds = 0;
    for (auto& drafter : drafters) {
        const auto count = uint32_t(drafter->priors().size());
        sources_.push_back({std::move(drafter), kinds});
        kinds += count;
    }
    if (options.draft_max == 0 || options.draft_max > max_draft_tokens)
        fail("drafts of up to {} tokens: at least 1 and at most {} can be verified", options.draft_max, max_draft_tokens);
    if (options.draft_min > options.draft_max)
        fail("drafts have at least {} tokens but at most {}: the first must not be the larger", options.draft_min,
             options.draft_max);
}

Speculation::Pending& Speculation::pending(uint32_t slot) {
    if (slot >= pending_.size()) pending_.resize(slot + 1);
    return pending_[slot];
}

bool Speculation::begin(uint32_t slot, std::span<const uint32_t> prompt, const Progress& progress) {
    pending(slot) = {};
    return std::ranges::all_of(sources_, [&](const Source& one) { return one.drafter->read(slot, prompt, progress); });
}

void Speculation::device_lost() {
    std::erase_if(sources_, [](const Source& one) { return !one.drafter->survives_loss(); });
}

// Counts the tokens of the pending draft that are right, when one was wrong or all are known.
void Speculation::resolve(const DraftRequest& request) {
    Pending& last = pending(request.slot);
    if (!last.any || request.ids.size() <= last.begin) return;
    const std::span now = request.ids.subspan(last.begin);
    const std::vector<uint32_t>& drafted = last.draft.ids;
    const auto right = uint32_t(std::mismatch(drafted.begin(), drafted.end(), now.begin(), now.end()).first - drafted.begin());
    const bool all = right == drafted.size(), wrong = !all && right < now.size();
    if (!all && !wrong) return;
    policy_.resolved(last.draft.kind, right + (wrong || last.ended ? 1 : 0), right);
    last.any = false;
}

// kind: of the policy
uint32_t Speculation::length(uint32_t kind, const Pass& pass, const DraftRequest& request) {
    const uint32_t max = std::min({request.max_tokens, pass.max_tokens, options_.draft_max});
    const uint32_t chosen = options_.adaptive ? policy_.length(kind, max) : max;
    return chosen < options_.draft_min ? 0 : chosen;
}

// length: of the verified draft. ended: by the drafter
void Speculation::take(Draft draft, size_t request, uint32_t length, bool ended, Pass& pass) {
    const auto& [slot, ids, max] = pass.requests[request];
    std::vector<uint32_t>& out = pass.out[request];
    out.assign(draft.ids.begin(), draft.ids.begin() + std::min<ptrdiff_t>(length, std::ssize(draft.ids)));
    if (out.size() < options_.draft_min) out.clear();
    pass.max_tokens -= uint32_t(out.size());
    Pending& last = pending(slot);
    if (!draft.ids.empty() && (!out.empty() || !last.any)) last = {std::move(draft), ids.size(), ended, true};
}

// Drafts are made for all, also drafts that are too long to be verified, to see whether they would have been right.
void Speculation::draft_freely(Forward& model, const Source& source, Pass& pass) {
    for (size_t i = 0; i < pass.requests.size(); i++) {
        if (!pass.out[i].empty()) continue;
        DraftRequest request = pass.requests[i];
        if (std::min(request.max_tokens, options_.draft_max) == 0) continue;
        request.max_tokens = max_draft_tokens;
        Draft draft = source.drafter->draft(model, std::span(&request, 1))[0];
        draft.kind += source.first_kind;
        const bool ended = draft.ids.size() < max_draft_tokens;
        const uint32_t chosen = draft.ids.empty() ? 0 : length(draft.kind, pass, pass.requests[i]);
        if (!draft.ids.empty() && chosen == 0) pass.declined = draft.kind;
        take(std::move(draft), i, chosen, ended, pass);
    }
}

// Drafts are as long as the policy wants them, and made together.
void Speculation::draft_at_cost(Forward& model, const Source& source, Pass& pass) {
    std::vector<DraftRequest> chosen;
    std::vector<size_t> numbers;
    uint32_t left = pass.max_tokens, longest = 0;
    for (size_t i = 0; i < pass.requests.size(); i++) {
        if (!pass.out[i].empty()) continue;
        DraftRequest request = pass.requests[i];
        request.max_tokens = std::min(request.max_tokens, left);
        if (request.max_tokens == 0) continue;
        request.max_tokens = length(source.first_kind, pass, request);
        if (request.max_tokens == 0) {
            pass.declined = source.first_kind;
            continue;
        }
        left -= request.max_tokens;
        chosen.push_back(request);
        numbers.push_back(i);
    }
    if (chosen.empty()) return;
    const auto start = std::chrono::steady_clock::now();
    std::vector<Draft> drafts = source.drafter->draft(model, chosen);
    const std::chrono::duration<double, std::nano> took = std::chrono::steady_clock::now() - start;
    for (size_t i = 0; i < drafts.size(); i++) {
        drafts[i].kind += source.first_kind;
        if (drafts[i].ids.empty()) policy_.resolved(drafts[i].kind, 1, 0);
        const bool ended = drafts[i].ids.size() < chosen[i].max_tokens;
        take(std::move(drafts[i]), numbers[i], chosen[i].max_tokens, ended, pass);
        longest = std::max(longest, uint32_t(pass.out[numbers[i]].size()));
    }
    policy_.drafted(longest, took.count());
    if (longest == 0) wasted_ns_ += took.count();
}

std::vector<std::vector<uint32_t>> Speculation::draft(Forward& model, std::span<const DraftRequest> requests, uint32_t streams,
                                                      uint32_t max, bool timed) {
    for (const DraftRequest& request : requests) resolve(request);
    Pass pass{requests, max, std::vector<std::vector<uint32_t>>(requests.size())};
    policy_.begin(streams, timed);
    wasted_ns_ = 0;
    for (const Source& source : sources_)
        source.drafter->is_free() ? draft_freely(model, source, pass) : draft_at_cost(model, source, pass);
    if (timed && options_.adaptive) tell(pass, streams);
    return std::move(pass.out);
}

// Trials in a pause are no end of it, unless they pay.
void Speculation::tell(const Pass& pass, uint32_t streams) {
    constexpr uint32_t patience = 32; // passes
    const bool drafts = std::ranges::any_of(pass.out, [](const auto& ids) { return !ids.empty(); });
    declined_ = drafts ? 0 : declined_ + (pass.declined ? 1 : 0);
    const bool pauses = !paused_ && declined_ == patience, goes_on = paused_ && drafts && policy_.pays(streams);
    if (!pauses && !goes_on) return;
    paused_ = pauses;
    if (!options_.on_change) return;
    options_.on_change(goes_on ? "drafts gain time again"
                               : fmt::format("drafts pause, as a pass without them is faster: {:.0f} % of their tokens are right",
                                             policy_.acceptance(pass.declined.value_or(0)) * 100));
}

void Speculation::ran_plain(uint32_t streams, uint32_t tokens, double ns) {
    policy_.begin(streams);
    policy_.ran_plain(tokens, std::max(ns - std::exchange(wasted_ns_, 0), 0.0));
}

} // namespace tq
