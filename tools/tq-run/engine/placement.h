// The placement of a model's parts: the devices, the user's wishes (-ngl, --n-cpu-moe, -ts, --fit) and what fits.
#pragma once
#include "model/forward.h"
#include "model/memory_plan.h"
#include "model/progress.h"
#include "model/stages/placement.h"
#include "runtime/capabilities.h"
#include "tools/tq-run/cli/arguments.h"
#include <memory>
#include <optional>

namespace tq {

class Device;
class RankGroup;
struct RankModel;

// A part of a placed model, and the memory that it takes.
struct PlacedPart {
    std::string device; // its name
    MemoryPlan plan;
    AssumedSpeed speed;
    std::string speed_source = "assumed"; // of the bandwidth
};

// The model's devices. Without one, everything is on the CPU.
struct Placing {
    std::vector<Device*> devices;
    std::vector<Capabilities> imagined = {}; // instead of devices: capabilities of another machine's
    uint64_t memory_limit_bytes = 0;         // of each device; 0: its own
    bool limit_is_all = false;               // the limit is all of the device's memory, however much that has
    PlacementArguments asked = {};
    RankGroup* ranks = nullptr; // that share the model, this process with its first device, or the CPU

    // Returns the placement; nullopt if the whole model is on the first device, or there is none. short_of: the share of the
    // devices' memory that is left free.
    std::optional<Split> choose(const Config& config, const Weights& weights, const ForwardOptions& options,
                                double short_of = 0) const;
    // Returns the part of each device, and the CPU's as the last.
    std::vector<PlacedPart> parts(const Config& config, const Weights& weights, const ForwardOptions& options,
                                  const Split& split) const;
    // Returns a line that says from how many tokens on blocks of a prompt stream the weights of the CPU's feed-forward networks
    // to the devices (Split::stream_rows), or why none do. Empty if the CPU has none whose attention is on a device.
    std::string describe_streams(const Config& config, const Weights& weights, const ForwardOptions& options,
                                 const Split& split) const;
    // Returns the sum of the parts' plans. It fits if each of them does.
    MemoryPlan plan(const Config& config, const Weights& weights, const ForwardOptions& options, const Split& split) const;

    // Loads the model onto its devices. If the memory of one runs short meanwhile, or later in a run, less is placed there, with
    // a line on standard error. `config` and `weights` must outlive the result. Throws Error; LoadStopped. reopen: opens devices
    // again after one was lost, when the model is not on them any more; null: it is lost.
    std::unique_ptr<Forward> open(const Config& config, const Weights& weights, const ForwardOptions& options,
                                  const LoadProgress& on_load, const std::function<Placing()>& reopen) const;

    // The same as plan(), over `ranks`.
    MemoryPlan plan_of_ranks(const Config& config, const Weights& weights, const ForwardOptions& options) const;
    // The division among `ranks`.
    Split rank_split(const Weights& weights) const;
    // Returns the model as one of several ranks; threads and memory_bytes come from `own`. It refers to this and to the
    // arguments.
    RankModel rank_model(const Config& config, const Weights& weights, const ForwardOptions& own) const;

  private:
    std::unique_ptr<Forward> open_on_ranks(const Config&, const Weights&, const ForwardOptions&,
                                           const LoadProgress& on_load) const;
    std::unique_ptr<Forward> load(const Config&, const Weights&, const ForwardOptions&, const LoadProgress& on_load,
                                  double& short_of) const;
    size_t count() const { return imagined.empty() ? devices.size() : imagined.size(); }
    const Capabilities& capabilities(size_t i) const;
    MemoryPlan plan_on(size_t device, const Config&, const Weights&, const ForwardOptions&) const;
    // Returns the options of a device's part.
    ForwardOptions options_of(size_t device, const ForwardOptions& options, const Split& split) const;
    std::vector<AssumedSpeed> speeds(const ForwardOptions& options) const;
    // Places without weights that come for each block, or so that there is room for them on the devices.
    Split choose_halves(const Config&, const Weights&, const ForwardOptions&, double short_of, bool streams) const;
    bool has_room_for_streams(const Config&, const Weights&, const ForwardOptions&) const;
    uint32_t stream_rows(const Config&, const Weights&, const ForwardOptions&, const Split&) const;
    ForwardOptions with_slices(const ForwardOptions& options) const;
};

// Returns one line: "NVIDIA ...: layers 10-47; head; CPU: layers 0-9".
std::string describe(const Placing& placing, const Split& split);

} // namespace tq
