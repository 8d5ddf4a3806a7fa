// A stage of a model on a Vulkan device.
#pragma once
#include "model/gpu/tuning.h"
#include "model/gpu/weights.h"
#include "model/stages/stage.h"

namespace tq {

// Uploads the weights of the halves in options.held and records their passes. options.batch_size is that of a slice, in the
// device's whole tiles (gpu::with_batch_size). `device` must outlive the result; `weights`, too, if options.streamed is not
// empty. layer_seconds as of make_gpu_forward(). Throws OutOfMemory if the part does not fit, before anything is loaded;
// LoadStopped; Error.
std::unique_ptr<Stage> make_gpu_stage(Device& device, const Config& config, const Weights& weights, const Cache& cache,
                                      const ForwardOptions& options, const LoadProgress& on_load = {},
                                      std::optional<double> layer_seconds = std::nullopt);

// Records a whole model with this tuning, for which its weights were uploaded. options.batch_size as above. Throws Error if
// memory runs out.
std::unique_ptr<Stage> make_gpu_stage(Device& device, const Config& config, std::shared_ptr<const gpu::DeviceWeights> weights,
                                      const Cache& cache, const ForwardOptions& options, const gpu::Tuning& tuning,
                                      std::optional<double> layer_seconds);

namespace gpu {

// Reads, checks, repacks and uploads the weights on `threads` threads. Throws Error, LoadStopped.
std::shared_ptr<DeviceWeights> load(Device& device, const Tuning& tuning, const Weights& weights, uint32_t threads,
                                    const LoadProgress& on_load);

} // namespace gpu
} // namespace tq
