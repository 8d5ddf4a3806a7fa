// Speculative decoding: which drafts are verified, and whether they were right. It outlives answers, so that its measurements
// serve the next one. model/engine/serving/answers.cpp verifies.
#pragma once
#include "model/engine/speculation/drafter.h"
#include "model/engine/speculation/policy.h"
#include <functional>
#include <memory>
#include <optional>
#include <string>

namespace tq {

struct SpeculationOptions {
    uint32_t draft_max = max_draft_tokens; // tokens of a draft, 1 to max_draft_tokens
    uint32_t draft_min = 1;                // shorter drafts are not verified
    bool adaptive = true;                  // drafts only if it pays; else always, with the maximum length
    // Told, in a sentence, if drafts pause because they lose time, and if they go on.
    std::function<void(const std::string&)> on_change = nullptr;
};

class Speculation {
  public:
    // drafters: at least one. A sequence has the draft of the first that has one for it. Throws Error when an option is outside
    // its range.
    Speculation(std::vector<std::unique_ptr<Drafter>> drafters, const SpeculationOptions& options);
    Speculation(std::unique_ptr<Drafter> drafter, const SpeculationOptions& options);

    // Begins with the prompt of a slot. Returns false if `progress` stopped a drafter. Throws what Drafter::read() throws.
    bool begin(uint32_t slot, std::span<const uint32_t> prompt, const Progress& progress = {});

    // Returns a draft for each request, empty if drafting is predicted to be slower for a pass of `streams` streams
    // (SpeculationPolicy). All drafts together have at most `max` tokens. timed: ran_plain() or verified() will tell the pass's
    // time.
    std::vector<std::vector<uint32_t>> draft(Forward& model, std::span<const DraftRequest> requests, uint32_t streams,
                                             uint32_t max, bool timed = true);

    // ran_plain(): time of a pass without drafts, in which each stream got `tokens` tokens. verified(): time of the pass after
    // draft(), with drafting; `tokens` of its `rows` rows stayed. Both include the sampling of the tokens that follow.
    void ran_plain(uint32_t streams, uint32_t tokens, double ns);
    void verified(uint32_t rows, uint32_t tokens, double ns) { policy_.verified(rows, tokens, ns); }

    // Maximum of tokens to sample on the device in one go: 1 if drafts pay, because a run-ahead pass verifies no drafts.
    uint32_t max_ahead() const { return options_.adaptive && !policy_.pays(1) ? SAMPLING_STEPS : 1; }

    // The device of the model was lost: drafters that may have been on it are gone.
    void device_lost();

  private:
    // A draft, verified or not, which the tokens that follow show to be right or wrong.
    struct Pending {
        Draft draft;
        size_t begin = 0;   // its place in the sequence
        bool ended = false; // by the drafter, before it had as many ids as it might
        bool any = false;
    };
    struct Source {
        std::unique_ptr<Drafter> drafter;
        uint32_t first_kind; // of the policy
    };
    // The drafts of a pass.
    struct Pass {
        std::span<const DraftRequest> requests;
        uint32_t max_tokens; // that drafts may have
        std::vector<std::vector<uint32_t>> out;
        std::optional<uint32_t> declined = {}; // a kind whose draft was possible, and promised less than none
    };
    Pending& pending(uint32_t slot);
    void resolve(const DraftRequest& request);
    uint32_t length(uint32_t kind, const Pass& pass, const DraftRequest& request);
    void draft_freely(Forward& model, const Source& source, Pass& pass);
    void draft_at_cost(Forward& model, const Source& source, Pass& pass);
    void take(Draft draft, size_t request, uint32_t length, bool ended, Pass& pass);
    void tell(const Pass& pass, uint32_t streams);

    std::vector<Source> sources_;
    const SpeculationOptions options_;
    SpeculationPolicy policy_;
    std::vector<Pending> pending_; // of each slot
    uint32_t declined_ = 0;        // passes since the last draft in which one was possible
    bool paused_ = false;          // as options_.on_change was told
    double wasted_ns_ = 0;         // by drafting without a draft, in the pass that runs
};

} // namespace tq
