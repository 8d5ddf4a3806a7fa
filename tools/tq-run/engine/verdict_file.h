// Findings of child processes about drivers and devices, kept in the cache directory: a JSON file of entries by key.
#pragma once
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

namespace tq {

// Returns the entry that remember() wrote; nothing if there is none, or the file is damaged or too long.
std::optional<nlohmann::ordered_json> recall(const std::filesystem::path& file, const std::string& key);
// Returns all entries, oldest first; an empty object if there is no such file.
nlohmann::ordered_json recall_all(const std::filesystem::path& file);

// Returns a text of an entry, empty if there is none. It is made printable, because anybody may have written the file.
std::string text_of(const nlohmann::ordered_json& entry, const char* key);

// Adds or replaces an entry, atomically; the oldest go if there are many. Returns why it could not; else an empty text.
std::string remember(const std::filesystem::path& file, const std::string& key, const nlohmann::ordered_json& entry);

} // namespace tq
