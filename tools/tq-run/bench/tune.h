// tq-run bench --tune: the fastest variants of the kernels on the device at hand, measured and stored.
#pragma once
#include "model/gpu/tuning_search.h"
#include "model/model.h"
#include "runtime/device.h"
#include "tools/check/conformance/logits.h"
#include "tools/check/conformance/subject.h"
#include "tools/tq-run/bench/arguments.h"
#include <map>
#include <memory>

namespace tq::bench {

// Lengths of the workloads, in tokens.
struct TrialSizes {
    uint32_t deep = 0, deep_prompt_at = 0, prompt = 0, deep_prompt = 0, long_prompt = 0;
};

// The models that tunings are timed on: the first layers of some models and a part of their vocabulary, more than the device's
// caches hold, as far as its memory has room and the time allows.
class Trials {
  public:
    // `run_seconds`: the approximate upper limit of one run of a workload.
    Trials(Device& device, const KvOptions& kv, double run_seconds);

    // Adds the model to the trials if it is the first, from which the sizes follow, or can be run in time. The data that
    // `model` points into outlives this object. Throws Error, and LoadStopped on Ctrl-C.
    void add(const std::string& name, const Config& config, const Weights& weights);

    // Makes a tuning that gives the default one's logits, within the limits of conformance; throws Error with the reason for
    // others, and LoadStopped on Ctrl-C.
    std::unique_ptr<gpu::Contestant> make(const gpu::Tuning& tuning, gpu::Workload workload);

    const TrialSizes& sizes() const { return sizes_; }
    std::vector<std::string> names() const;
    bool by_timestamps() const; // else by the wall clock

  private:
    using Logits = std::vector<std::vector<float>>;
    struct Subject; // a model
    class Trial;
    class Contest;
    void measure_sizes(Trial& first);

    Device& device_;
    const KvOptions kv_;
    const double run_seconds_;
    TrialSizes sizes_;
    double seconds_per_weight_ = 0; // of a layer, for the first tokens of a prompt
    std::vector<std::shared_ptr<Subject>> subjects_;
};

int run_tune(const Arguments& arguments, Console& console);

} // namespace tq::bench
