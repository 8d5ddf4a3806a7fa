// The forward pass in plain loops: the same computation as model/cpu and model/gpu, without optimisation. Read forward.cpp first.
#pragma once
#include "model/forward.h"
#include "model/host/network.h"

namespace tq {

// Each span is one pass, however long, and options.tap is not called: `on_result` is. Throws Error naming a weight that is not
// finite, std::bad_alloc.
std::unique_ptr<Forward> make_reference_forward(const Config& config, const Weights& weights, const ForwardOptions& options,
                                                host::OnResult on_result = {});

} // namespace tq
