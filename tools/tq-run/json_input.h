// JSON from standard input.
#pragma once
#include <nlohmann/json.hpp>
#include <string_view>

namespace tq {

// Throws Error that names `what` and the place when the text is not JSON, or is nested deeper than 128 levels.
nlohmann::ordered_json parse_json(std::string_view text, std::string_view what);

} // namespace tq
