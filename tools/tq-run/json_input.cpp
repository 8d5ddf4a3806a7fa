#include "tools/tq-run/json_input.h"
#include "base/error.h"
#include "base/printable.h"

namespace tq {

constexpr int max_depth = 128; // the template writes JSON recursively

nlohmann::ordered_json parse_json(std::string_view text, std::string_view what) {
    using nlohmann::ordered_json;
    const auto bounded = [&](int depth, ordered_json::parse_event_t, ordered_json&) {
        if (depth > max_depth) fail("{} is nested deeper than {} levels", what, max_depth);
        return true;
    };
    try {
        return ordered_json::parse(text, bounded);
    } catch (const ordered_json::exception& error) { // a number out of range is no parse_error
        const std::string_view message = error.what(); // "[json.exception.parse_error.101] parse error at ..."
        fail("{} is not JSON: {}", what, printable(message.substr(message.find(']') + 2), 200));
    }
}

} // namespace tq
