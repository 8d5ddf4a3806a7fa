// The forward pass on the CPU: the kernels of model/reference/kernels.h in vectors, on threads.
#pragma once
#include "model/forward.h"
#include "model/load.h"
#include "model/memory_plan.h"

namespace tq {

inline constexpr uint32_t cpu_batch_size = 128; // default tokens of a prefill block

// Reads and checks the weights (on_load reports progress). Weights in a mapped file are used in place, and the file must outlive
// the result. If they exceed the memory that is left beside the rest (plan_cpu_memory), their matrices are neither read nor
// checked before a token needs them. If not all pages of the cache fit into the memory, the cache has as many as fit. Throws
// Error, before anything is allocated, if only too few fit; Error that names the tensor and row of a weight that is not finite;
// LoadStopped.
std::unique_ptr<Forward> make_cpu_forward(const Config& config, const Weights& weights, const ForwardOptions& options,
                                          const LoadProgress& on_load = {});

// Uses loaded weights, which several can share. Throws Error as the other does for the cache.
std::unique_ptr<Forward> make_cpu_forward(const Config& config, std::shared_ptr<const LoadedWeights> weights,
                                          const ForwardOptions& options);

// Returns the physical memory that the pass needs once all pages of the cache have been written, and the memory that is
// available: the machine's, or options.memory_bytes. The weights of a mapped file count as weights, too, since they are read
// again for every token.
MemoryPlan plan_cpu_memory(const Config& config, const Weights& weights, const ForwardOptions& options);

} // namespace tq
