// A model, its device and its options before anything is loaded: what `plan` prints, and an Engine is started from.
#pragma once
#include "runtime/device.h"
#include "tools/tq-run/engine/choose_device.h"
#include "tools/tq-run/engine/engine.h"
#include "tools/tq-run/engine/placement.h"

namespace tq {

// The model, the device and the options, before anything is loaded.
struct Setup {
    std::filesystem::path file; // of the model; empty: random weights
    Model model;
    std::unique_ptr<Device> device; // none on the CPU
    std::string device_name;        // with its driver
    ForwardOptions options;
    uint64_t memory_limit_bytes;                      // 0: none
    bool imagined = false;                            // the limit is all the memory of a machine that need not be this one
    std::optional<Capabilities> imagined_device = {}; // that machine's, used instead of `device`
    std::vector<std::unique_ptr<Device>> other_devices = {};
    PlacementArguments placement = {};
    std::string selector = {};  // of the devices
    RankGroup* ranks = nullptr; // that share the model; null: this process has all of it

    Placing placing() const; // refers to this
    // Returns the placement over devices; nullopt if the first device, or the CPU without one, has all.
    std::optional<Split> split() const;

    // The plan with another cache. The memory that it takes does not depend on the contents of `model.weights`.
    MemoryPlan plan(uint32_t context_size, const KvOptions& kv) const;
    MemoryPlan plan(const ForwardOptions& changed) const; // with other options
    // The plan if the first device, or the CPU without one, has everything.
    MemoryPlan plan_alone(const ForwardOptions& changed) const;
    MemoryPlan plan() const { return plan(options.context_size, options.kv); }
};

// Opens the device and the model, after its download. Throws Error, or UsageError if flags contradict each other.
Setup set_up(const ModelArguments& arguments, Console& console, WithoutGpu otherwise = WithoutGpu::cpu,
             const Drafting& drafting = {});

// For planning only. If arguments.memory_limit_bytes gives the memory, that of this machine does not count, and only a named
// device is opened; without a name it is some GPU with that much memory.
Setup set_up_plan(const ModelArguments& arguments, Console& console, const Drafting& drafting);

// Throws UsageError if flags ask for several devices or for layers on the CPU. For commands that compare on one device.
void require_one_device(const Setup& setup);

// Loads the model of a setup, as start_engine(arguments, console, drafting) of engine.h does.
std::unique_ptr<Engine> start_engine(Setup setup, Console& console);

} // namespace tq
