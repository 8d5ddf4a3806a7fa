// Speculative decoding: which drafts are verified, and what became of them. It outlives answers, so that what it has measured
// serves the next one. model/serving/answers.cpp verifies.
#pragma once
#include "model/speculation/drafter.h"
#include "model/speculation/policy.h"
#include <memory>

namespace tq {

struct SpeculationOptions {
    uint32_t draft_max = max_draft_tokens; // tokens of a draft, 1 to max_draft_tokens
    uint32_t draft_min = 1;                // shorter drafts are not verified
    bool adaptive = true;                  // drafts only where it pays; else always, and as long as they can be
};

class Speculation {
  public:
    // Throws Error when an option is outside its range.
    Speculation(std::unique_ptr<Drafter> drafter, const SpeculationOptions& options);

    // Begins with a prompt. Returns false if `progress` stopped the drafter. Throws what Drafter::read() throws.
    bool begin(std::span<const uint32_t> prompt, const Progress& progress = {});

    // Returns ids to verify after `ids`, which are all tokens so far, at most `most` of them; none if a pass of one row
    // promises more.
    std::vector<uint32_t> draft(std::span<const uint32_t> ids, uint32_t most);

    // So many tokens took so long without a draft; a pass of so many rows, of which `tokens` stayed, with the time that draft()
    // took. Both with the sampling of the tokens that follow.
    void ran_plain(uint32_t tokens, double ns);
    void verified(uint32_t rows, uint32_t tokens, double ns) { policy_.verified(rows, tokens, ns); }

    // The most tokens that a device should sample at once: few where drafts pay, for between them there are none.
    uint32_t max_ahead() const { return options_.adaptive && !policy_.pays() ? SAMPLING_STEPS : 1; }

  private:
    // A draft, verified or not, which the tokens that follow show to be right or wrong.
    struct Pending {
        Draft draft;
        size_t begin = 0;   // its place in the sequence
        bool ended = false; // by the drafter, before it had as many ids as it might
        bool any = false;
    };
    void resolve(std::span<const uint32_t> ids);
    uint32_t length(uint32_t kind, uint32_t most);

    const std::unique_ptr<Drafter> drafter_;
    const SpeculationOptions options_;
    SpeculationPolicy policy_;
    Pending pending_;
    double wasted_ns_ = 0; // by drafting without a draft, in the pass that runs
};

} // namespace tq
