// JSON from untrusted files: limited in size, depth and number of values, and without duplicate keys in an object.
#pragma once
#include <cstdint>
#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

namespace tq {

// Throws an Error that begins with `subject`, such as a path, when `text` is not JSON, has over 4 million values, is nested
// deeper than `max_depth` levels or has a key twice in one object.
nlohmann::json read_json(std::string_view text, const std::string& subject, uint32_t max_depth = 64);

// Reads a whole file of at most `max_bytes` in the same way.
nlohmann::json read_json_file(const std::filesystem::path& path, uint64_t max_bytes);

// Returns a whole file of at most `max_bytes` as text, without a leading byte order mark; of a pipe only if it is a descriptor of
// this process, such as /dev/fd/63. Throws an Error that names it.
std::string read_text_file(const std::filesystem::path& path, uint64_t max_bytes);

// Returns false also if it cannot be determined.
bool is_there(const std::filesystem::path& path);

// Returns "an object", "a list", "a text", ...
const char* kind_of(const nlohmann::json& value);

} // namespace tq
