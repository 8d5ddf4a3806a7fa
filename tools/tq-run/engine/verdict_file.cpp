// File: {"schema": "tq-run-verdicts", "version": 1, "entries": {KEY: {...}, ...}}
// If two processes write at the same time, the later wins, and the other's verdict is found again. A file that is too long or
// damaged counts as empty, since all it holds can be measured again.
#include "tools/tq-run/engine/verdict_file.h"
#include "base/error.h"
#include "base/json.h"
#include "base/printable.h"
#include "base/whole_file.h"
#include <fstream>

namespace tq {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr uintmax_t max_bytes = 1 << 20;
constexpr size_t max_entries = 64;
constexpr const char* schema = "tq-run-verdicts";

} // namespace

Json recall_all(const fs::path& file) {
    std::error_code error;
    const uintmax_t bytes = file.empty() ? 0 : fs::file_size(file, error); // fails for all but regular files
    if (error || bytes == 0 || bytes > max_bytes) return Json::object();
    std::ifstream in(file, std::ios::binary);
    std::string text(size_t(bytes), '\0');
    if (!in.read(text.data(), std::streamsize(bytes))) return Json::object();
    try {
        const Json all = build_json<Json>(text, "it", {.max_depth = 8, .max_values = 1 << 16});
        const Json entries = all.is_object() && all.value("schema", Json()) == schema && all.value("version", Json()) == 1
                                 ? all.value("entries", Json())
                                 : Json();
        return entries.is_object() ? entries : Json::object();
    } catch (const Error&) { // damaged: it is written anew
        return Json::object();
    }
}

std::optional<Json> recall(const fs::path& file, const std::string& key) {
    const Json entries = recall_all(file);
    const auto found = entries.find(key);
    if (found == entries.end() || !found->is_object()) return std::nullopt;
    return *found;
}

std::string text_of(const Json& entry, const char* key) {
    const auto found = entry.find(key);
    return found != entry.end() && found->is_string() ? printable(found->get<std::string>(), 600) : "";
}

std::string remember(const fs::path& file, const std::string& key, const Json& entry) {
    if (file.empty()) return "the environment names no cache directory";
    Json entries = recall_all(file);
    entries.erase(key);
    while (entries.size() >= max_entries) entries.erase(entries.begin());
    entries[key] = entry;
    const Json all{{"schema", schema}, {"version", 1}, {"entries", entries}};
    const std::string text = all.dump(1, ' ', false, Json::error_handler_t::replace) + '\n';
    std::error_code error;
    fs::create_directories(file.parent_path(), error); // the next step reports an error
    error = write_whole_file(file, {std::as_bytes(std::span(text))});
    return error ? error.message() : "";
}

} // namespace tq
