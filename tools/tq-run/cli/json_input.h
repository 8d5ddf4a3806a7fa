// JSON from standard input.
#pragma once
#include <nlohmann/json_fwd.hpp>
#include <string_view>

namespace tq {

// Throws Error that names `what` and the place when the text is not JSON, is nested deeper than 128 levels, has a key twice in
// one object, or over 4 million values. Half a character, "\\ud83d", is U+FFFD.
nlohmann::ordered_json parse_json(std::string_view text, std::string_view what);

} // namespace tq
