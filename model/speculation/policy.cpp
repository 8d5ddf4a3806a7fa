// A draft of k tokens costs a pass of k + 1 rows and the drafting, in units of a plain pass: cost(k + 1) is measured for each
// number of rows, and interpolated for the others. It gives 1 + a + a^2 + ... + a^k tokens on average, if a is the share of right
// tokens of its kind. best() takes the k with the most tokens per time. A draft runs if that promises 3 % more than plain
// decoding. Otherwise short drafts are tried now and then, at intervals that double while they do not pay. lost_ns_ is what
// drafts have lost since they last gained; no trial may raise it above 2 % of the run's time. After 64 passes with drafts one
// runs without, so that the time of a plain pass is known.
#include "model/speculation/policy.h"
#include <algorithm>

namespace tq {
namespace {

constexpr double prior_tests = 3;    // the weight of a prior, in tested tokens
constexpr double memory = 0.9;       // of an earlier draft, when one more has been resolved
constexpr double prior_slope = 0.25; // the cost of one more row, of one row's
constexpr double margin = 1.03;      // what a draft should promise at least
constexpr double credit = 1;         // tokens' time that drafts may lose before anything is known
constexpr uint32_t remeasured = 64;  // passes with drafts between passes without
constexpr uint32_t first_interval = 16, longest_interval = 1024;
constexpr uint32_t trial_length = 3;

} // namespace

SpeculationPolicy::SpeculationPolicy(const std::vector<double>& priors) : trial_interval_(first_interval) {
    for (const double prior : priors) kinds_.push_back({prior * prior_tests, prior_tests});
}

// The second sample replaces a greater first one, which may have warmed something up. Later ones count for an eighth, and none
// for more than twice the estimate.
void SpeculationPolicy::Estimate::add(double sample) {
    samples++;
    if (samples <= 2)
        value = samples == 1 ? sample : std::min(value, sample);
    else
        value += (std::min(sample, 2 * value) - value) / 8;
}

double SpeculationPolicy::acceptance(uint32_t kind) const {
    return std::clamp(kinds_[kind].right / kinds_[kind].tested, 0.01, 0.99);
}

double SpeculationPolicy::cost(uint32_t rows) const {
    uint32_t below = 1, above = 0;
    double at_below = 1;
    for (uint32_t r = 2; r <= max_rows && above == 0; r++) {
        if (costs_[r].samples == 0) continue;
        if (r <= rows) {
            below = r;
            at_below = costs_[r].value;
        } else
            above = r;
    }
    const double slope = above != 0   ? (costs_[above].value - at_below) / (above - below)
                         : below == 1 ? prior_slope
                                      : (at_below - 1) / (below - 1);
    return at_below + std::max(slope, 0.0) * (rows - below);
}

SpeculationPolicy::Choice SpeculationPolicy::best(uint32_t kind, uint32_t most) const {
    const double right = acceptance(kind), draft_cost = draft_ns_.value / plain_ns_.value;
    Choice out{0, 1};
    double tokens = 1, chance = 1; // tokens that a pass is expected to give; that all drafted ones are right
    for (uint32_t k = 1; k <= std::min(most, max_rows - 1); k++) {
        tokens += chance *= right;
        const double gain = tokens / (cost(k + 1) + k * draft_cost);
        if (k == 1 || gain > out.gain) out = {k, gain};
    }
    return out;
}

// Returns whether drafts may lose so much more.
bool SpeculationPolicy::may_try(double loss_ns) { return lost_ns_ + loss_ns <= trial_budget * elapsed_ns_; }

uint32_t SpeculationPolicy::length(uint32_t kind, uint32_t most) {
    trying_ = false;
    if (most == 0 || plain_ns_.samples == 0 || since_plain_ >= remeasured) return 0;
    const Choice choice = best(kind, most);
    if (choice.gain >= margin) return may_try(-credit * plain_ns_.value) ? choice.length : 0;
    if (since_trial_ < trial_interval_) return 0;
    const uint32_t k = std::min({most, trial_length, max_rows - 1});
    const double cost_ns = cost(k + 1) * plain_ns_.value + k * draft_ns_.value;
    trying_ = may_try(std::max(cost_ns - plain_ns_.value, 0.0));
    return trying_ ? k : 0;
}

void SpeculationPolicy::ran_plain(uint32_t tokens, double ns) {
    if (tokens == 0) return;
    plain_ns_.add(ns / tokens);
    elapsed_ns_ += ns;
    since_plain_ = 0;
    since_trial_ += tokens;
}

void SpeculationPolicy::drafted(uint32_t tokens, double ns) {
    draft_ns_.add(ns / std::max(tokens, 1u));
    drafting_ns_ = tokens > 0 ? ns : 0;
    if (tokens > 0) return;
    elapsed_ns_ += ns; // for nothing
    lost_ns_ += ns;
}

void SpeculationPolicy::verified(uint32_t rows, uint32_t tokens, double ns) {
    // Passes without drafts are interrupted, too: what exceeds twice the expected time is no loss of drafts.
    const double worth = tokens * plain_ns_.value, most = 2 * cost(rows) * plain_ns_.value + drafting_ns_;
    costs_[std::min(rows, max_rows)].add(std::max(ns - drafting_ns_, 0.0) / plain_ns_.value);
    drafting_ns_ = 0;
    elapsed_ns_ += ns;
    lost_ns_ = std::max(lost_ns_ + std::min(ns, most) - worth, 0.0);
    pays_ = ns < worth;
    since_plain_++;
    since_trial_ = 0;
    if (trying_) trial_interval_ = pays_ ? first_interval : std::min(2 * trial_interval_, longest_interval);
}

void SpeculationPolicy::resolved(uint32_t kind, uint32_t tested, uint32_t accepted) {
    Kind& k = kinds_[kind];
    k = {memory * k.right + accepted, memory * k.tested + tested};
}

} // namespace tq
