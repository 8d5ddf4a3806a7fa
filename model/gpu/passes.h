// What the forward pass of a whole model on a device and a stage of one have in common.
#pragma once
#include "model/gpu/cache.h"
#include "model/gpu/tuning.h"
#include "model/gpu/weights.h"

namespace tq::gpu {

// Reads, checks, repacks and uploads the weights on `threads` threads.
std::shared_ptr<DeviceWeights> load(Device& device, const Tuning& tuning, const Weights& weights, uint32_t threads,
                                    const LoadProgress& on_load);

// Makes the vectors of the layers that options hold, with their windows.
KvCache make_vectors(Device& device, const Config& config, const ForwardOptions& options);

// Returns the tuning with which these options run.
Tuning tuning_for_rows(Tuning tuning, const ForwardOptions& options);

// Names the device, its driver and its kernels: Forward::computation().
std::string computation(const Device& device, const Tuning& tuning, const ForwardOptions& options, uint32_t pages);

// Returns "the key of layer 3, kv head 1, position 17", with the slot where there are several: the first stored vector of it that
// is not finite. Reads all back. Throws OutOfMemory.
std::optional<std::string> find_nonfinite(const KvCache& vectors, Device& device, const Cache& cache, uint32_t slot);

} // namespace tq::gpu
