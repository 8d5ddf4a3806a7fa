// A stage of a model on the CPU.
#pragma once
#include "model/load.h"
#include "model/stages/stage.h"

namespace tq {

// Loads the weights of the halves in options.held. If they exceed the memory, their matrices stay in the file, which must then
// outlive the result, until a token needs them. options.batch_size: rows of a slice, or of a whole model's block; not 0. Throws
// Error as load_weights() does, LoadStopped, std::bad_alloc.
std::unique_ptr<Stage> make_cpu_stage(const Config& config, const Weights& weights, const Cache& cache,
                                      const ForwardOptions& options, const LoadProgress& on_load = {});
// Uses loaded weights, which several can share. Throws std::bad_alloc.
std::unique_ptr<Stage> make_cpu_stage(const Config& config, std::shared_ptr<const LoadedWeights> weights, const Cache& cache,
                                      const ForwardOptions& options);

} // namespace tq
