// Is a compressed cache right, and how few bits does a model bear? The protocol of sanctum's sweep (its names of runs where they
// coincide): first every stage between a key and its bytes in isolation, so that an error is named by the stage that it is in;
// then a staircase over bits, one thing changed at a time. It ends at a bug or at a winner.
#pragma once
#include "tools/quality/cache_cost.h"

namespace tq::quality {

// By how far the perplexity moves: pass to 0.3 and 5 %, warn to 1.0, or fail; and fail where the KL divergence is above a limit.
// Invalid: something is not finite, which is a bug.
enum class Verdict { pass, warn, fail, invalid };
const char* name(Verdict verdict);

// One run of the protocol.
struct Trial {
    std::string run;      // "A1", "keys 4", ...
    std::string isolates; // the one thing in which it differs from what has passed before
    std::string look;     // at what, when it fails
    KvOptions kv;
    bool blocks = false;          // the reference cache itself, filled in blocks against token by token
    std::optional<double> max_kl; // above it fails, whatever the perplexity
    std::string because = {};     // of max_kl: what sets it
    bool few_bits = false;        // the perplexity says how well the model bears them; only max_kl tells of a bug
};

inline constexpr size_t max_runs = 27; // of the protocol: 13 stages, and at most 14 steps

// The reference of all: nothing is rounded.
inline const KvOptions ablation_reference{KvType::f32, KvType::f32};

struct Outcome {
    Trial trial;
    std::optional<CacheCost> cost; // none: a value was not finite
    Verdict verdict = Verdict::invalid;
    bool bug = false;
    std::string reason; // of fail, invalid and a bug: one sentence

    // Of the perplexity; not a number without a cost.
    double change() const;
    double relative_change() const;
    double change_error() const; // standard error of change()
};
Outcome judge(const Trial& trial, const std::optional<CacheCost>& cost);

// Throws NonFinite as Forward does; nothing when it was stopped.
using MeasureTrial = std::function<std::optional<CacheCost>(const Trial& trial)>;

struct Findings {
    std::vector<Outcome> outcomes;
    std::optional<Outcome> bug;    // the first stage that has one: nothing after it can be trusted
    std::optional<Outcome> winner; // of the staircase
    bool confirmed = false;        // within the budgets by two standard errors
    bool stopped = false;
};

// `on_outcome` is told each as it is known. `past_bugs`: go on all the same.
Findings run_protocol(const MeasureTrial& measure, const std::function<void(const Outcome&)>& on_outcome, bool past_bugs);

} // namespace tq::quality
