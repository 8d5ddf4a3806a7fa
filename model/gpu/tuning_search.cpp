// The tuner begins with choose_tuning() and goes through the groups of fields (tuning_fields.cpp), each with a workload of its
// own and a share of the time. In a group it goes field by field and value by value: the candidate runs in turn with the best so
// far (a race), because a device's speed drifts by more than most gains. A race has at least 3 pairs of runs and at most 9; it
// ends early if the gain is hopeless, or after 5 pairs if it is certain. The gain is the median of the pairs' ratios, its noise
// two standard errors of that median, at least as large as in earlier races of the group. Only a gain that exceeds min_gain by
// more than the noise is taken. The best of many candidates is partly the luckiest, so the group's winner races once more against
// the tuning before the group, and is dropped if its gain is not certain then. A candidate that fails is refused, and the search
// goes on.
#include "model/gpu/tuning_search.h"
#include "base/ensure.h"
#include "base/error.h"
#include "base/statistics.h"
#include <algorithm>
#include <cmath>

namespace tq::gpu {
namespace {

constexpr size_t min_pairs = 3, enough_pairs = 5, max_pairs = 9;

// Returns the geometric mean over all models of the first contestant's times relative to the second's.
double ratio(std::span<const double> first, std::span<const double> second) {
    ENSURE(first.size() == second.size() && !first.empty(), "{} and {} models", first.size(), second.size());
    double sum = 0;
    for (size_t i = 0; i < first.size(); i++) sum += std::log(std::max(first[i], 1e-12) / std::max(second[i], 1e-12));
    return std::exp(sum / double(first.size()));
}

// The failure of a candidate, rather than of the incumbent that it is compared with.
struct CandidateFailed : Error {
    using Error::Error;
};

template <class Work> auto of_candidate(Work work) {
    try {
        return work();
    } catch (const Error& error) {
        throw CandidateFailed(error.what());
    }
}

struct Race {
    Gain gain;
    double first_seconds, second_seconds; // medians, on the first model
};

// `distances`: of ratios to their medians in earlier races; this race appends its own.
Race race(Contestant& first, Contestant& second, std::vector<double>& distances) {
    const double usual = distances.empty() ? 0 : median(distances);
    std::vector<double> ratios, firsts, seconds;
    Gain gain;
    while (ratios.size() < max_pairs) {
        const std::vector<double> a = first.seconds(), b = of_candidate([&] { return second.seconds(); });
        ratios.push_back(ratio(a, b));
        firsts.push_back(a[0]);
        seconds.push_back(b[0]);
        gain = gain_of(ratios, usual);
        if (ratios.size() >= min_pairs && gain.hopeless()) break;
        if (ratios.size() >= enough_pairs && gain.certain()) break;
    }
    for (const double value : ratios) distances.push_back(std::fabs(value - gain.ratio));
    return {gain, median(firsts), median(seconds)};
}

class Search {
  public:
    Search(const Capabilities& device, const SearchOptions& options)
        : device_(device), options_(options), best_(choose_tuning(device)) {}

    Found run() {
        Found found;
        double shares = 0;
        for (const TuningGroup& group : tuning_groups()) shares += group.share;
        for (const TuningGroup& group : tuning_groups()) {
            const double left = std::max(options_.seconds_left(), 0.0);
            found.groups.push_back(choose(group, left * (1 - group.share / shares)));
            shares -= group.share;
        }
        found.tuning = best_;
        return found;
    }

  private:
    std::unique_ptr<Contestant> make(const Tuning& tuning, Workload workload) const {
        auto made = options_.make(tuning, workload);
        made->seconds(); // warms up: the first run is slower than the others
        return made;
    }
    GroupChoice choose(const TuningGroup& group, double until_left);
    void try_field(const TuningField& field, GroupChoice& choice, double until_left);
    void confirm(GroupChoice& choice);

    const Capabilities& device_;
    const SearchOptions& options_;
    Tuning best_;
    std::unique_ptr<Contestant> incumbent_; // runs best_ on the group's workload
    std::vector<double> distances_;         // of all races of the group
};

GroupChoice Search::choose(const TuningGroup& group, double until_left) {
    GroupChoice choice{.group = &group, .before = best_, .after = best_, .gain = {}};
    if (options_.seconds_left() <= until_left) {
        for (const TuningField& field : group.fields) choice.left_out += uint32_t(candidates(device_, best_, field).size());
        return choice;
    }
    distances_.clear();
    incumbent_ = make(best_, group.workload);
    for (const TuningField& field : group.fields) try_field(field, choice, until_left);
    if (best_ != choice.before) confirm(choice);
    choice.after = best_;
    if (choice.seconds_before == 0) choice.seconds_before = choice.seconds_after = incumbent_->seconds()[0];
    incumbent_.reset();
    return choice;
}

void Search::try_field(const TuningField& field, GroupChoice& choice, double until_left) {
    for (const Tuning& candidate : candidates(device_, best_, field)) {
        if (candidate == best_) continue;
        if (options_.seconds_left() <= until_left) {
            choice.left_out++;
            continue;
        }
        choice.tried++;
        if (options_.on_try) options_.on_try(*choice.group, describe(candidate, choice.group->fields));
        try {
            auto challenger = of_candidate([&] { return make(candidate, choice.group->workload); });
            if (!race(*incumbent_, *challenger, distances_).gain.certain()) continue;
            incumbent_ = std::move(challenger);
            best_ = candidate;
        } catch (const CandidateFailed& error) {
            choice.refused++;
            if (options_.on_refused) options_.on_refused(candidate, error.what());
        }
    }
}

// The best of many candidates is partly the luckiest: its gain is measured again, and it is dropped if that is too small.
void Search::confirm(GroupChoice& choice) {
    const auto before = make(choice.before, choice.group->workload);
    const Race last = race(*before, *incumbent_, distances_);
    choice.gain = last.gain;
    choice.seconds_before = last.first_seconds;
    choice.seconds_after = last.second_seconds;
    if (last.gain.certain()) return;
    choice.gain = {};
    choice.seconds_after = choice.seconds_before;
    best_ = choice.before;
}

} // namespace

bool Gain::certain() const { return ratio - noise >= min_gain; }
bool Gain::hopeless() const { return ratio + noise < min_gain; }

// 1.4826 times the median distance estimates a standard deviation, and 1.2533 of that over sqrt(n) is the standard error of a
// median, both for normal distributions.
Gain gain_of(std::span<const double> ratios, double distance) {
    ENSURE(!ratios.empty(), "no ratios");
    const double middle = median({ratios.begin(), ratios.end()});
    std::vector<double> distances;
    for (const double value : ratios) distances.push_back(std::fabs(value - middle));
    return {middle, 2 * 1.2533 * 1.4826 * std::max(median(distances), distance) / std::sqrt(double(ratios.size()))};
}

Found search_tuning(const Capabilities& device, const SearchOptions& options) { return Search(device, options).run(); }

} // namespace tq::gpu
