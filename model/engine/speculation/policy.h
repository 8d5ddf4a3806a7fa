// Lengths of drafts that pay: by the share of drafted tokens that turn out right, and by the cost of passes of few and of more
// rows; both are measured in the run itself.
#pragma once
#include <array>
#include <cstdint>
#include <map>
#include <vector>

namespace tq {

// A pass has a row for each stream (an answer that goes on), and one for each drafted token. Times are measured apart for each
// number of streams.
class SpeculationPolicy {
  public:
    // priors: Drafter::priors()
    explicit SpeculationPolicy(const std::vector<double>& priors);

    // Starts a pass of `streams` streams, at least 1; the calls that follow are about it. timed: its time will be reported. In
    // untimed passes, which read prompts too, no draft is tried out.
    void begin(uint32_t streams, bool timed = true);

    // Returns the length of a draft of this kind, at most `max`, with which a pass promises the most tokens per second; 0 if it
    // promises more without a draft. The draft is for a stream that has none yet. Drafts that lose time, or whose times are not
    // known, are tried for at most 2 % of the time.
    uint32_t length(uint32_t kind, uint32_t max);

    // Reports a pass without drafts: the time of each stream's `tokens` tokens, their sampling included.
    void ran_plain(uint32_t tokens, double ns);
    // Reports the time to draft `tokens` tokens one after another, for all streams at once. It is part of the time of the pass
    // that verifies them. If no pass verifies any, do not report it.
    void drafted(uint32_t tokens, double ns);
    // Reports the time of a pass of `rows` rows with its drafts and the sampling; `tokens` of them stayed.
    void verified(uint32_t rows, uint32_t tokens, double ns);
    // Notes a draft of this kind: its first `accepted` tokens were right. If `tested` is larger, the next one was wrong.
    void resolved(uint32_t kind, uint32_t tested, uint32_t accepted);

    // The share of drafted tokens of this kind that are right.
    double acceptance(uint32_t kind) const;
    // The time of a pass of `rows` rows, in units of a pass without a draft; estimated if it was not measured.
    double cost(uint32_t rows) const;
    // Whether the last pass of `streams` streams that had a draft gained time.
    bool pays(uint32_t streams) const {
        const auto found = all_.find(streams);
        return found != all_.end() && found->second.pays;
    }

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
    // Measurements of passes of `streams` streams.
    struct Times {
        uint32_t streams;
        Estimate plain_ns, draft_ns;              // of a pass without drafts; of one drafted token
        std::array<Estimate, max_rows + 1> costs; // [rows]: of a pass without the time of its drafts
        double elapsed_ns = 0, lost_ns = 0;       // lost: by drafts, since they last gained
        double drafting_ns = 0;                   // of the pass that follows
        uint32_t since_plain = 0;                 // passes with drafts
        uint32_t since_trial = 0, trial_interval; // in passes without
        bool trying = false, pays = false;
    };
    // The pass that is planned.
    struct Planned {
        uint32_t rows = 1, drafted = 0; // drafted: the longest draft
        double tokens = 1;              // that are expected
    };
    struct Choice {
        uint32_t length;
        double gain, tokens; // gain: tokens per time; tokens: of the pass without this draft
    };
    double time(uint32_t rows, uint32_t drafted) const;
    Choice best(uint32_t kind, uint32_t max) const;
    bool may_try(double loss_ns);
    uint32_t add(uint32_t length, double tokens);

    std::vector<Kind> kinds_;
    std::map<uint32_t, Times> all_; // by number of streams
    Times* times_;                  // of the pass that is next
    Planned planned_;
    bool timed_ = true;
};

} // namespace tq
