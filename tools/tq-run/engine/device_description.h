// The facts of a device, as JSON and as texts.
#pragma once
#include "runtime/capabilities.h"
#include <nlohmann/json_fwd.hpp>
#include <string>

namespace tq {

// All known properties of the device, and the variants of the kernels that it gets.
nlohmann::ordered_json describe(const Capabilities& device);

// Makes valid UTF-8 for the JSON of any name that a driver gives its device.
std::string driver_text(const std::string& from_driver);
std::string api_version_text(uint32_t version); // "1.3.230"

} // namespace tq
