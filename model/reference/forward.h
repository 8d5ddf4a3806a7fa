// The forward pass in plain loops: what model/cpu and model/gpu compute, without haste. The file to read first is forward.cpp.
#pragma once
#include "model/forward.h"
#include "model/host/network.h"

namespace tq {

// The whole cache is there from the beginning, blocks are as long as what is run, and options.tap is not called: `on_result` is.
// It offers run(), run_all() and truncate(). Throws Error naming a weight that is not finite, std::bad_alloc.
std::unique_ptr<Forward> make_reference_forward(const Config& config, const Weights& weights, const ForwardOptions& options,
                                                host::OnResult on_result = {});

} // namespace tq
