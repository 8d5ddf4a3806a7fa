// JSON as Python writes it, which is what the model saw in training: json.dumps(value, ensure_ascii=False); and its strip().
#pragma once
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

namespace tq {

// Returns the JSON with ", " and ": " between items, keys in their order, non-ASCII unchanged, numbers as Python's repr. Throws
// an Error when the value is nested deeper than 256 levels. `indent`: of json.dumps; 0: all in one line.
std::string python_json(const nlohmann::ordered_json& value, int indent = 0);

// Returns the text without white space at both ends, as Python's str.strip().
std::string_view python_strip(std::string_view text);

} // namespace tq
