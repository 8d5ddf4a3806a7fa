// JSON as Python writes it, which is what the model saw in training: json.dumps(value, ensure_ascii=False).
#pragma once
#include <nlohmann/json_fwd.hpp>
#include <string>

namespace tq {

// Returns the JSON with ", " and ": " between items, keys in their order, non-ASCII unchanged, numbers as Python's repr. Throws
// an Error when the value is nested deeper than 256 levels. `indent`: of json.dumps; 0: all in one line.
std::string python_json(const nlohmann::ordered_json& value, int indent = 0);

} // namespace tq
