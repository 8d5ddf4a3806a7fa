// The search for a tuning: group by group and field by field, each candidate interleaved with the best so far, and only a gain
// beyond the noise counts. The caller provides the timing.
#pragma once
#include "model/gpu/tuning_fields.h"
#include <functional>
#include <memory>

namespace tq::gpu {

// A tuning that is ready to be timed.
class Contestant {
  public:
    virtual ~Contestant() = default;
    virtual std::vector<double> seconds() = 0; // of one run of its workload on each of some models. Throws Error
};

struct SearchOptions {
    // Throws Error with the reason if the tuning fails or computes something other than the default one.
    std::function<std::unique_ptr<Contestant>(const Tuning&, Workload)> make;
    std::function<double()> seconds_left;
    std::function<void(const TuningGroup&, const std::string& what)> on_try = {};
    std::function<void(const Tuning&, const std::string& why)> on_refused = {};
};

// The speedup of one contestant over another, from interleaved runs: the median of the ratios of each pair of runs. Its
// uncertainty is two standard errors of a median, from the median of the distances to it; or from `distance`, of other runs, if
// that is greater, since a few runs can agree by chance.
struct Gain {
    double ratio = 1, noise = 0;

    bool certain() const; // at least min_gain, after subtracting the noise
    bool hopeless() const;
};
inline constexpr double min_gain = 1.03;
Gain gain_of(std::span<const double> ratios, double distance = 0);

struct GroupChoice {
    const TuningGroup* group;
    Tuning before, after;                          // equal if nothing was faster
    Gain gain;                                     // of the whole group, measured again after the choice
    double seconds_before = 0, seconds_after = 0;  // of the first model; 0 if there was no time for any candidate
    uint32_t tried = 0, refused = 0, left_out = 0; // candidates; left out: for lack of time
};

struct Found {
    Tuning tuning;
    std::vector<GroupChoice> groups;
};

// Searches, starting from choose_tuning(device). Any exception from `options` other than a candidate's Error ends the search.
Found search_tuning(const Capabilities& device, const SearchOptions& options);

} // namespace tq::gpu
