// File: {"schema": "tq-run-tuning", "version": 1, "device": the device's identity, "kernels": every field of tuning_fields(),
// "measured": ...}
#include "model/gpu/tuning_file.h"
#include "base/environment.h"
#include "base/error.h"
#include "base/file_system.h"
#include "base/path_text.h"
#include "base/printable.h"
#include "base/whole_file.h"
#include "model/files/formats/json.h"
#include "model/gpu/tuning_fields.h"
#include "runtime/device_files.h"
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>

namespace tq::gpu {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr const char* schema_name = "tq-run-tuning";
constexpr int schema_version = 1;
constexpr uintmax_t max_bytes = 256 << 10;
constexpr const char* remedy = "tq-run bench --tune makes a new one, tq-run bench --tune --reset removes it";

std::string shown(const fs::path& path) { return printable(utf8_text(path), 300); }

json identity(const Capabilities& device) {
    std::string uuid;
    for (const uint8_t byte : device.pipeline_cache_uuid) uuid += fmt::format("{:02x}", byte);
    return {{"name", printable(device.name, 256)},
            {"vendor_id", device.vendor_id},
            {"device_id", device.device_id},
            {"driver_version", device.driver_version},
            {"uuid", uuid},
            {"profile", device.profile}};
}

const json& field(const json& object, const char* key) {
    const auto found = object.is_object() ? object.find(key) : object.end();
    if (found == object.end()) fail("it has no \"{}\"", key);
    return *found;
}

// Throws Error with the reason.
// A file is used whole or not at all: with all fields that this program has, each a value that is tried, for this very device and
// driver. Otherwise the default is used, with a note.
Tuning parse(const Capabilities& device, const json& all) {
    if (field(all, "schema") != schema_name || field(all, "version") != schema_version)
        fail("it is not of version {} of {}", schema_version, schema_name);
    if (field(all, "device") != identity(device)) fail("it was made for another device or driver");
    const json& kernels = field(all, "kernels");
    const std::vector<TuningField> fields = tuning_fields();
    if (kernels.size() != fields.size()) fail("it has {} choices, and this program makes {}", kernels.size(), fields.size());
    Tuning tuning = choose_tuning(device);
    for (const TuningField& one : fields) {
        const json& value = field(kernels, one.name);
        if (!value.is_number_unsigned() || value.get<uint64_t>() > UINT32_MAX) fail("\"{}\" is not a whole number", one.name);
        one.set(tuning, value.get<uint32_t>());
        if (one.get(tuning) != value.get<uint32_t>()) fail("\"{}\" cannot be {}", one.name, value.get<uint32_t>());
    }
    const std::string reason = refusal(device, tuning);
    if (!reason.empty()) fail("{}", reason);
    return tuning;
}

std::string read_all(const fs::path& path) {
    std::error_code error;
    const uintmax_t bytes = fs::file_size(path, error); // fails for all but regular files
    if (error) fail("it cannot be read: {}", error.message());
    if (bytes > max_bytes) fail("it has {} bytes, more than {}", bytes, max_bytes);
    std::ifstream in(path, std::ios::binary);
    std::string text(size_t(bytes), '\0');
    if (!in.read(text.data(), std::streamsize(bytes))) fail("it cannot be read: {}", std::strerror(errno));
    return text;
}

StoredTuning read(const Capabilities& device, const fs::path& path) {
    try {
        return {parse(device, read_json(read_all(path), "it")), ""};
    } catch (const Error& error) {
        return {std::nullopt, fmt::format("the tuning in {} is not used: {}; {}", shown(path), error.what(), remedy)};
    }
}

[[noreturn]] void fail_to_store(const fs::path& path, const std::string& why) {
    fail("cannot store the tuning in {}: {}. Make the directory writable, or set the environment variable TQ_CACHE_DIR to "
         "another one",
         shown(path), why);
}

// Writes `text` to a file beside `path` that is unique to this writer.
// The draft is on the disk before it is renamed: a reader sees the old tuning or the new one, and never a part of one.
fs::path write_draft(const fs::path& path, const std::string& text) {
    if (path.empty()) fail("there is no directory to store the tuning in: set the environment variable TQ_CACHE_DIR to one");
    std::error_code error;
    fs::create_directories(path.parent_path(), error); // the next step reports an error
    fs::path draft = draft_beside(path);
    try {
        if (const std::error_code failed = write_file(draft, {std::as_bytes(std::span(text))})) fail("{}", failed.message());
        flush_to_disk(draft);
    } catch (const Error& failure) {
        fs::remove(draft, error);
        fail_to_store(path, failure.what());
    }
    return draft;
}

bool ignores_stored() {
    const std::string text = environment_variable("TQ_TUNING").value_or("");
    if (!text.empty() && text != "stored" && text != "default")
        fail("TQ_TUNING is \"{}\"; it can be \"stored\" or \"default\"", printable(text));
    return text == "default";
}

} // namespace

fs::path tuning_path(const Capabilities& device) {
    return device_file(device, device.profile.empty() || device.profile == "none" ? std::string(".tuning.json")
                                                                                  : "-" + device.profile + ".tuning.json");
}

StoredTuning stored_tuning(const Capabilities& device) {
    const fs::path path = tuning_path(device);
    std::error_code error;
    if (ignores_stored() || path.empty() || fs::symlink_status(path, error).type() == fs::file_type::not_found) return {};
    return read(device, path);
}

Tuning tuning_for(const Capabilities& device) { return stored_tuning(device).tuning.value_or(choose_tuning(device)); }

void store_tuning(const Capabilities& device, const Tuning& tuning, const nlohmann::ordered_json& measured) {
    nlohmann::ordered_json all{{"schema", schema_name}, {"version", schema_version}, {"device", identity(device)}};
    for (const TuningField& one : tuning_fields()) all["kernels"][one.name] = one.get(tuning);
    all["measured"] = measured;
    const fs::path path = tuning_path(device),
                   draft = write_draft(path, all.dump(1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + '\n');
    std::error_code error, ignored;
    fs::rename(draft, path, error);
    if (!error) return;
    fs::remove(draft, ignored);
    fail_to_store(path, error.message());
}

// Writes an empty draft and removes it, before a search that takes minutes and would end with nothing.
void check_storable(const Capabilities& device) {
    std::error_code error;
    fs::remove(write_draft(tuning_path(device), ""), error);
}

bool forget_tuning(const Capabilities& device) {
    const fs::path path = tuning_path(device);
    std::error_code error;
    const bool was = !path.empty() && fs::remove(path, error);
    if (error) fail("cannot remove {}: {}", shown(path), error.message());
    return was;
}

} // namespace tq::gpu
