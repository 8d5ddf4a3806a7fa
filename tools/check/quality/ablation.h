// Is a compressed cache correct, and how few bits does a model tolerate? First every stage between a key and its bytes in
// isolation, so that an error is attributed to its stage; then a staircase over bits, one change at a time. It ends at a bug or
// at a winner.
#pragma once
#include "tools/check/quality/cache_cost.h"

namespace tq::quality {

// The verdict depends on the change of the perplexity: pass to 0.3 and 5 %, warn to 1.0, else fail; and fail if the KL divergence
// is above a limit. Invalid: a value is not finite, which is a bug.
enum class Verdict { pass, warn, fail, invalid };
const char* name(Verdict verdict);

// A run of the protocol.
struct Trial {
    std::string run;      // "rotation", "keys 4", ...
    std::string isolates; // the one difference from the runs that have passed before
    std::string look;     // where to look for the bug when it fails
    KvOptions kv;
    bool blocks = false;          // compares the reference cache filled in blocks with the same filled token by token
    std::optional<double> max_kl; // above it fails, whatever the perplexity
    std::string because = {};     // the reason for max_kl
    bool few_bits = false;        // the perplexity measures how well the model tolerates few bits; only max_kl indicates a bug
};

inline constexpr size_t max_runs = 27; // in the protocol: 14 stages, and at most 13 steps

// The reference of all runs: nothing is rounded.
inline const KvOptions ablation_reference{KvType::f32, KvType::f32};

struct Outcome {
    Trial trial;
    std::optional<CacheCost> cost; // none: a value was not finite
    Verdict verdict = Verdict::invalid;
    bool bug = false;
    std::string reason; // of fail, invalid and a bug: one sentence

    // The change of the perplexity; NaN without a cost.
    double change() const;
    double relative_change() const;
    double change_error() const; // standard error of change()
};
Outcome judge(const Trial& trial, const std::optional<CacheCost>& cost);

// Throws NonFinite as Forward does; returns nothing when it was stopped.
using MeasureTrial = std::function<std::optional<CacheCost>(const Trial& trial)>;

struct Findings {
    std::vector<Outcome> outcomes;
    std::optional<Outcome> bug;    // of the first stage that has one: nothing after it can be trusted
    std::optional<Outcome> winner; // the staircase's winner
    bool confirmed = false;        // within the budgets by two standard errors
    bool stopped = false;
};

// `on_outcome` is called with each outcome as it is known. `past_bugs`: continue after a bug.
Findings run_protocol(const MeasureTrial& measure, const std::function<void(const Outcome&)>& on_outcome, bool past_bugs);

} // namespace tq::quality
