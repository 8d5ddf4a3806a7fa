// How long drafts should be so that they pay: by the share of drafted tokens that turn out right, and by what passes of one row
// and of several cost, both measured in the run itself.
#pragma once
#include <array>
#include <cstdint>
#include <vector>

namespace tq {

class SpeculationPolicy {
  public:
    // priors: Drafter::priors()
    explicit SpeculationPolicy(const std::vector<double>& priors);

    // Returns the length of a draft of this kind that promises the most tokens per second, at most `most`; 0 where a pass of one
    // row promises more. Drafts that lose time, or whose times are not known, are tried for at most 2 % of the time.
    uint32_t length(uint32_t kind, uint32_t most);

    // Without a draft, `tokens` tokens took so long, their sampling included.
    void ran_plain(uint32_t tokens, double ns);
    // To draft so many tokens took so long. It is part of the time of the pass that verifies them; without any, nothing is.
    void drafted(uint32_t tokens, double ns);
    // A pass of several rows, of which `tokens` stayed, took so long, with its draft and the sampling.
    void verified(uint32_t rows, uint32_t tokens, double ns);
    // Notes a draft of this kind: its first `accepted` tokens were right. If `tested` is larger, the next one was wrong.
    void resolved(uint32_t kind, uint32_t tested, uint32_t accepted);

    // The share of drafted tokens of this kind that are right.
    double acceptance(uint32_t kind) const;
    // The time of a pass of so many rows, in times of a pass of one row without a draft; estimated where it was not measured.
    double cost(uint32_t rows) const;
    bool pays() const { return pays_; } // whether the last pass with a draft gained time

    static constexpr double trial_budget = 0.02; // of the time
    static constexpr uint32_t max_rows = 16;

  private:
    // A running estimate that one interrupted pass does not spoil.
    struct Estimate {
        double value = 0;
        uint32_t samples = 0;
        void add(double sample);
    };
    struct Kind {
        double right, tested; // of recent drafts
    };
    struct Choice {
        uint32_t length;
        double gain; // tokens per time, of those of plain decoding
    };
    Choice best(uint32_t kind, uint32_t most) const;
    bool may_try(double loss_ns);

    std::vector<Kind> kinds_;
    Estimate plain_ns_, draft_ns_;              // of one token
    std::array<Estimate, max_rows + 1> costs_;  // of a pass of so many rows, without its draft
    double elapsed_ns_ = 0, lost_ns_ = 0;       // lost: by drafts, since they last gained
    double drafting_ns_ = 0;                    // of the pass that follows
    uint32_t since_plain_ = 0;                  // passes with drafts
    uint32_t since_trial_ = 0, trial_interval_; // in passes without
    bool trying_ = false, pays_ = false;
};

} // namespace tq
