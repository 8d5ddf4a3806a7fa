// A draft of k tokens costs k more rows and the drafting, in units of a plain pass of the same streams: cost(rows) is measured
// for each number of rows, and interpolated for the others. It gives a + a^2 + ... + a^k tokens more on average, if a is the
// share of right tokens of its kind. best() takes the k with the most tokens per time, given the drafts that other streams have
// in the pass. A draft runs if that promises 3 % more than a pass without it (of its stream's share). Otherwise short drafts are
// tried now and then, at intervals that double while they do not pay. lost_ns is what drafts have lost since they last gained; no
// trial may raise it above 2 % of the run's time. After 64 passes with drafts one runs without, so that the time of a plain pass
// is known.
#include "model/engine/speculation/policy.h"
#include <algorithm>

namespace tq {
namespace {

constexpr double prior_tests = 3;    // the weight of a prior, in tested tokens
constexpr double memory = 0.9;       // of an earlier draft, when one more has been resolved
constexpr double prior_slope = 0.25; // the cost of one more row, of one row's
constexpr double margin = 0.03;      // minimum gain that a draft should promise
constexpr double credit = 1;         // tokens' time that drafts may lose before anything is known
constexpr uint32_t remeasured = 64;  // passes with drafts between passes without
constexpr uint32_t first_interval = 16, max_interval = 1024;
constexpr uint32_t trial_length = 3;

} // namespace

SpeculationPolicy::SpeculationPolicy(const std::vector<double>& priors) {
    for (const double prior : priors) kinds_.push_back({prior * prior_tests, prior_tests});
    begin(1);
}

void SpeculationPolicy::begin(uint32_t streams, bool timed) {
    times_ = &all_.try_emplace(streams, Times{.streams = streams, .trial_interval = first_interval}).first->second;
    times_->trying = false;
    times_->drafting_ns = 0;
    timed_ = timed;
    planned_ = {streams, 0, double(streams)};
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
    const uint32_t plain = times_->streams;
    uint32_t below = plain, above = 0;
    double at_below = 1;
    for (uint32_t r = plain + 1; r <= max_rows && above == 0; r++) {
        if (times_->costs[r].samples == 0) continue;
        if (r <= rows) {
            below = r;
            at_below = times_->costs[r].value;
        } else
            above = r;
    }
    const double slope = above != 0       ? (times_->costs[above].value - at_below) / (above - below)
                         : below == plain ? prior_slope / (1 + prior_slope * (plain - 1))
                                          : (at_below - 1) / (below - plain);
    return at_below + std::max(slope, 0.0) * (rows - below);
}

// In units of a plain pass.
double SpeculationPolicy::time(uint32_t rows, uint32_t drafted) const {
    return cost(rows) + drafted * times_->draft_ns.value / times_->plain_ns.value;
}

SpeculationPolicy::Choice SpeculationPolicy::best(uint32_t kind, uint32_t max) const {
    const double right = acceptance(kind), without = planned_.tokens / time(planned_.rows, planned_.drafted);
    Choice out{0, 1, planned_.tokens};
    double tokens = planned_.tokens, chance = 1; // tokens that a pass is expected to give; that all drafted ones are right
    for (uint32_t k = 1; k <= max; k++) {
        tokens += chance *= right;
        const double gain = tokens / time(planned_.rows + k, std::max(planned_.drafted, k)) / without;
        if (k == 1 || gain > out.gain) out = {k, gain, tokens};
    }
    return out;
}

// Returns whether drafts may lose so much more.
bool SpeculationPolicy::may_try(double loss_ns) { return times_->lost_ns + loss_ns <= trial_budget * times_->elapsed_ns; }

// Adds a draft to the planned pass. Returns its length.
uint32_t SpeculationPolicy::add(uint32_t length, double tokens) {
    planned_ = {planned_.rows + length, std::max(planned_.drafted, length), tokens};
    return length;
}

uint32_t SpeculationPolicy::length(uint32_t kind, uint32_t max) {
    Times& t = *times_;
    max = std::min(max, max_rows - std::min(max_rows, planned_.rows));
    if (max == 0 || t.plain_ns.samples == 0 || (timed_ && t.since_plain >= remeasured)) return 0;
    const uint32_t tried = std::min(max, trial_length);
    if (t.trying) return add(tried, planned_.tokens);
    const Choice choice = best(kind, max);
    if (choice.gain >= 1 + margin / t.streams) return may_try(-credit * t.plain_ns.value) ? add(choice.length, choice.tokens) : 0;
    if (!timed_ || planned_.drafted > 0 || t.since_trial < t.trial_interval) return 0;
    const double cost_ns = time(planned_.rows + tried, tried) * t.plain_ns.value;
    t.trying = may_try(std::max(cost_ns - t.plain_ns.value, 0.0));
    return t.trying ? add(tried, planned_.tokens) : 0;
}

void SpeculationPolicy::ran_plain(uint32_t tokens, double ns) {
    if (tokens == 0) return;
    Times& t = *times_;
    t.plain_ns.add(ns / tokens);
    t.elapsed_ns += ns;
    t.since_plain = 0;
    t.since_trial += tokens;
}

void SpeculationPolicy::drafted(uint32_t tokens, double ns) {
    Times& t = *times_;
    t.draft_ns.add(ns / std::max(tokens, 1u));
    t.drafting_ns = tokens > 0 ? ns : 0;
    if (tokens > 0) return;
    t.elapsed_ns += ns; // for nothing
    t.lost_ns += ns;
}

void SpeculationPolicy::verified(uint32_t rows, uint32_t tokens, double ns) {
    // Passes without drafts are interrupted, too: what exceeds twice the expected time is no loss of drafts.
    Times& t = *times_;
    const double worth = tokens * t.plain_ns.value / t.streams, max = 2 * cost(rows) * t.plain_ns.value + t.drafting_ns;
    t.costs[std::min(rows, max_rows)].add(std::max(ns - t.drafting_ns, 0.0) / t.plain_ns.value);
    t.drafting_ns = 0;
    t.elapsed_ns += ns;
    t.lost_ns = std::max(t.lost_ns + std::min(ns, max) - worth, 0.0);
    t.pays = ns < worth;
    t.since_plain++;
    t.since_trial = 0;
    if (t.trying) t.trial_interval = t.pays ? first_interval : std::min(2 * t.trial_interval, max_interval);
}

void SpeculationPolicy::resolved(uint32_t kind, uint32_t tested, uint32_t accepted) {
    Kind& k = kinds_[kind];
    k = {memory * k.right + accepted, memory * k.tested + tested};
}

} // namespace tq
