// The search for a tuning: group by group and field by field, each candidate in turn with the best so far, and only a gain that
// the noise does not explain counts. What is timed, and how, the caller says.
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
    // Throws Error with the reason where the tuning fails or computes something else than the default one.
    std::function<std::unique_ptr<Contestant>(const Tuning&, Workload)> make;
    std::function<double()> seconds_left;
    std::function<void(const TuningGroup&, const std::string& what)> on_try = {};
    std::function<void(const Tuning&, const std::string& why)> on_refused = {};
};

// How much faster one is than another, from runs in turn: the median of the ratios of each two, and how far that may be off: two
// standard errors of a median, from the median of the distances to it; or from `distance`, what other runs have shown, where that
// is greater, for a few runs can agree by chance.
struct Gain {
    double ratio = 1, noise = 0;

    bool certain() const; // at least min_gain, whatever of it is noise
    bool hopeless() const;
};
inline constexpr double min_gain = 1.03;
Gain gain_of(std::span<const double> ratios, double distance = 0);

struct GroupChoice {
    const TuningGroup* group;
    Tuning before, after;                          // equal where nothing was faster
    Gain gain;                                     // of the whole group, measured once more when the choice was made
    double seconds_before = 0, seconds_after = 0;  // of the first model; 0 where there was no time for any candidate
    uint32_t tried = 0, refused = 0, left_out = 0; // candidates; left out: for want of time
};

struct Found {
    Tuning tuning;
    std::vector<GroupChoice> groups;
};

// From choose_tuning(device) on. Whatever `options` throw but for the Error of a candidate ends the search.
Found search_tuning(const Capabilities& device, const SearchOptions& options);

} // namespace tq::gpu
