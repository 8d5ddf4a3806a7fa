// The text on which caches are measured.
#pragma once
#include "model/kv/options.h"
#include "tools/tq-run/engine/setup.h"
#include <nlohmann/json_fwd.hpp>

namespace tq {

struct MeasuredText {
    std::string name; // "text.txt", or "the built-in text"
    std::string hash; // SHA-256, as hexadecimal digits; "fnv1a64:" and digits in a build without OpenSSL
    std::vector<uint32_t> ids;
};

// Reads a file, or if `path` is empty a built-in text (2064 tokens of the demo model), with a note on standard error: that
// text shows whether a cache works, but is too short to measure its cost. Throws Error when it cannot be read, or has not one
// chunk of `chunk_tokens` tokens.
MeasuredText read_measured_text(const std::string& path, const Tokenizer& tokenizer, uint32_t chunk_tokens);

// The heading of a report of a measurement: model, device, build and, if there is one, the text.
std::string measurement_heading(const Setup& setup);
std::string measurement_heading(const Setup& setup, const MeasuredText& text);
std::string cache_text(const Config& config, const KvOptions& kv); // "tq3/tq3, 800 bytes per token, 5.12x smaller than f16"

// Returns the common fields of the log of a cache's measurement: schema (version 1), model, caches, device, build. The command
// adds its own. `reference`: the cache that it is compared with, null for none.
nlohmann::json measurement_of_cache(const char* schema, const Setup& setup, const nlohmann::json& reference);

} // namespace tq
