// Files of the types of a model's cache, layer by layer, as `tq-run mix` writes them and --kv reads them:
//   {"schema": "tq-run-kv", "version": 1, "about": "what it was made for", "rotation": "wht", "scale_rule": "unbiased",
//    "conditioning": "auto", "layers": [{"k": "tq4", "v": "tq3"}, ...]}
// "window": 16 is --kv-window. All but "layers" and the first two can be left out; no other key is known. The names are those of
// -ctk, --kv-rotation, --kv-scale and --kv-condition.
#pragma once
#include "model/kv/options.h"
#include <filesystem>
#include <nlohmann/json_fwd.hpp>

namespace tq {

// Returns true if --kv names a file of cache types rather than a preset.
inline bool is_kv_file(std::string_view text) { return text.ends_with(".json"); }

// Throws an Error that names the file and the place in it.
KvOptions read_kv_file(const std::filesystem::path& path);

// Returns the content of such a file, for a model of `layers` layers; as text, a line for each layer.
nlohmann::ordered_json kv_json(const KvOptions& kv, uint32_t layers, const std::string& about);
std::string kv_file_text(const KvOptions& kv, uint32_t layers, const std::string& about);

} // namespace tq
