// tq-run devices: what can run a model here.
#pragma once
#include "runtime/capabilities.h"
#include <nlohmann/json_fwd.hpp>

namespace tq {

// Everything that is known of it, and the variants of the kernels that it will get.
nlohmann::ordered_json describe(const Capabilities& device);

} // namespace tq
