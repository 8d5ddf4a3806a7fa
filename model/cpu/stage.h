// A stage of a model on the CPU.
#pragma once
#include "model/load.h"
#include "model/stages/stage.h"

namespace tq {

// Loads the weights of the halves in options.held, on options.threads threads; those in a mapped file are used in place, and the
// file must outlive the result. options.batch_size is that of a slice. Throws what load_weights() does; std::bad_alloc.
std::unique_ptr<Stage> make_cpu_stage(const Config& config, const Weights& weights, const Cache& cache,
                                      const ForwardOptions& options, const LoadProgress& on_load = {});

} // namespace tq
