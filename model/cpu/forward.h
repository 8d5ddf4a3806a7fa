// The forward pass on the CPU: plain fp32 loops on threads, the definition of what the GPU computes.
#pragma once
#include "model/forward.h"
#include "model/weights.h"

namespace tq {

// `weights` must outlive the result. Throws Error, before anything is allocated, when weights and cache exceed the machine's
// memory.
std::unique_ptr<Forward> make_cpu_forward(const Config& config, const Weights& weights, const ForwardOptions& options);

} // namespace tq
