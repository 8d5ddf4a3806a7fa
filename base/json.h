// Reads JSON that may be hostile: limits are checked while it is read, in time linear in its length, and duplicate keys are
// refused, or the last one counts. (nlohmann's own parser with a callback visits all siblings again at the end of each list and
// object.)
#pragma once
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace tq {

struct JsonLimits {
    uint32_t max_depth = 64;
    uint32_t max_values = 1u << 22; // a value takes much more memory than text; tokenizer.json of Qwen3 has some 760,000
    bool repeated_keys = false;     // are not refused: the last one counts, as in most parsers
    bool lone_surrogates = false;   // escapes of half a character, "\\ud83d", are not refused: they are read as U+FFFD
};

// Parses `text`. Throws an Error that begins with `subject`, such as a path, when it is not JSON, exceeds a limit, or repeats a
// key within one object. Strings are bounded by the length of `text`, which the caller must limit. Json: json or ordered_json.
template <class Json = nlohmann::json>
Json build_json(std::string_view text, const std::string& subject, const JsonLimits& limits = {});

extern template nlohmann::json build_json(std::string_view, const std::string&, const JsonLimits&);
extern template nlohmann::ordered_json build_json(std::string_view, const std::string&, const JsonLimits&);

} // namespace tq
