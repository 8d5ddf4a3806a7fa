// One copy of a model's weights, and as many caches on it as are compared.
#pragma once
#include "model/gpu/forward.h"
#include "tools/tq-run/engine.h"

namespace tq {

class SharedModel {
  public:
    // Reads, checks and uploads the weights, showing progress. `setup` must outlive this. Throws Error, and LoadStopped on
    // Ctrl-C.
    SharedModel(Setup& setup, Console& console);

    // With a cache of its own of setup.options.context_size tokens. Throws Error when it does not fit.
    std::unique_ptr<Forward> forward(const KvOptions& kv) const;

  private:
    Setup& setup_;
    gpu::Tuning tuning_;                                 // of the device
    std::shared_ptr<const gpu::DeviceWeights> uploaded_; // one of the two
    std::shared_ptr<const LoadedWeights> loaded_;
};

// What the weights and caches of all these types, `setup`'s context each, take together.
MemoryPlan plan_together(const Setup& setup, std::span<const KvOptions> caches);

// Throws Error when that does not fit.
void check_memory(const Setup& setup, std::span<const KvOptions> caches);

} // namespace tq
