// A stage of a model on the CPU.
#pragma once
#include "model/load.h"
#include "model/stages/stage.h"

namespace tq {

// Loads the weights of the halves in options.held, of those that exceed the memory nothing before it is needed, as in a whole
// model. options.batch_size: that of a slice, or of a whole model's block. Throws what loading throws.
std::unique_ptr<Stage> make_cpu_stage(const Config& config, const Weights& weights, const Cache& cache,
                                      const ForwardOptions& options, const LoadProgress& on_load = {});
// Of loaded weights, which several can share.
std::unique_ptr<Stage> make_cpu_stage(const Config& config, std::shared_ptr<const LoadedWeights> weights, const Cache& cache,
                                      const ForwardOptions& options);

} // namespace tq
