// The forward pass on a Vulkan device: the same steps as model/cpu/forward.cpp, recorded once and run for every block and token.
#pragma once
#include "model/forward.h"
#include "model/gpu/weights.h"

namespace tq {

// Uploads the weights (on options.threads threads; on_load is called as they go), builds the pipelines and records the passes. `device` must
// outlive the result; `weights` need not. Throws Error, before anything is loaded, when the model and a cache of
// options.context_size tokens do not fit the device's memory.
std::unique_ptr<Forward> make_gpu_forward(Device& device, const Config& config, const Weights& weights,
                                          const ForwardOptions& options, const LoadProgress& on_load = {});

} // namespace tq
