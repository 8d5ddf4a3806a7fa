// The forward pass on a Vulkan device: the same steps as model/reference/forward.cpp, recorded once and run for every block and
// token.
#pragma once
#include "model/forward.h"
#include "model/gpu/tuning.h"
#include "model/gpu/weights.h"
#include <optional>

namespace tq {

// Uploads the weights (on options.threads threads; on_load reports progress), builds the pipelines and records the passes.
// `device` must outlive the result; `weights` need not. Throws Error, before anything is loaded, when the model and the initial
// cache do not fit into the device's memory, or the device cannot bind a cache of options.context_size tokens; and LoadStopped.
std::unique_ptr<Forward> make_gpu_forward(Device& device, const Config& config, const Weights& weights,
                                          const ForwardOptions& options, const LoadProgress& on_load = {});

// Uses a tuning that the device can run (tuning_fields.h) and weights that were uploaded for it, so that several can be
// compared. A block of a prompt has as many tokens as a layer processes in `layer_seconds` (block_pace.h; empty: by the
// device's type). Throws Error when memory runs out.
std::unique_ptr<Forward> make_gpu_forward(Device& device, const Config& config, std::shared_ptr<const gpu::DeviceWeights> weights,
                                          const ForwardOptions& options, const gpu::Tuning& tuning,
                                          std::optional<double> layer_seconds = std::nullopt);

} // namespace tq
