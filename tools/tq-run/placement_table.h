// Where the parts of a model would run, and the predicted speed of that and of other choices, for people.
#pragma once
#include <nlohmann/json_fwd.hpp>
#include <string>

namespace tq {

struct Setup;

// What each device would have, where several or the CPU share the model, and the predicted tokens per second of this placement
// and of others; empty without a device.
std::string placement_table(const Setup& setup);
nlohmann::ordered_json placement_json(const Setup& setup);

} // namespace tq
