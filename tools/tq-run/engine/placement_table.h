// A table for people: where the parts of a model would run, and the predicted speed of this and of other placements.
#pragma once
#include <nlohmann/json_fwd.hpp>
#include <string>

namespace tq {

struct Setup;

// Returns the part of each device, if several, or the CPU with one, share the model, and the predicted tokens per second of this
// placement and of others. Empty without a device.
std::string placement_table(const Setup& setup);
nlohmann::ordered_json placement_json(const Setup& setup);

} // namespace tq
