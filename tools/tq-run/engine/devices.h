// tq-run devices: the devices of this machine that can run a model.
#pragma once
#include "runtime/capabilities.h"
#include <nlohmann/json_fwd.hpp>

namespace tq {

// All known properties of the device, and the variants of the kernels that it gets.
nlohmann::ordered_json describe(const Capabilities& device);

} // namespace tq
