#include "tools/tq-run/cli/json_input.h"
#include "base/json.h"
#include <nlohmann/json.hpp>

namespace tq {

nlohmann::ordered_json parse_json(std::string_view text, std::string_view what) {
    constexpr JsonLimits limits{.max_depth = 128, .lone_surrogates = true}; // the template writes JSON recursively
    return build_json<nlohmann::ordered_json>(text, std::string(what), limits);
}

} // namespace tq
