// A single copy of a model's weights, and several caches on it that are compared.
#pragma once
#include "model/gpu/forward.h"
#include "tools/tq-run/engine/setup.h"

namespace tq {

class SharedModel {
  public:
    // Reads, checks and uploads the weights, showing progress. `setup` must outlive this. Throws Error, and LoadStopped on
    // Ctrl-C.
    SharedModel(Setup& setup, Console& console);

    // Makes a Forward with its own cache of setup.options.context_size tokens. If the cache is conditioned automatically, keys
    // are measured before, once. Throws Error if it does not fit; LoadStopped.
    std::unique_ptr<Forward> forward(const KvOptions& kv) const;

  private:
    std::unique_ptr<Forward> open(const ForwardOptions& options) const;

    Setup& setup_;
    Console& console_;
    gpu::Tuning tuning_;                                 // of the device
    std::shared_ptr<const gpu::DeviceWeights> uploaded_; // one of the two is set
    std::shared_ptr<const LoadedWeights> loaded_;
    mutable std::shared_ptr<const KeyCalibration> measured_; // once a cache needs it
};

// The memory of the weights and of caches of all these types together, each of `setup`'s context.
MemoryPlan plan_together(const Setup& setup, std::span<const KvOptions> caches);

// Throws Error when they do not fit together.
void check_memory(const Setup& setup, std::span<const KvOptions> caches);

} // namespace tq
