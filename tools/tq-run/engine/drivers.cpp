// First contact with Vulkan drivers. A driver can crash or hang in the call that lists its devices, so a child makes that call
// first (survey_drivers). If the child survives with all drivers, nothing is changed. Else each driver is listed alone. The
// drivers that survive are listed together once more. Environment variables then name only these to the loader of this process,
// which must happen before its first call.
// The result is kept in drivers.json under a key of all that may change it: manifests of drivers and layers with size and time,
// the variables that steer them, and the library cache, since a manifest may name a library elsewhere. So a new or updated driver
// is tried again, and an ordinary start asks no child.
// The Vulkan loader documents the directories (LoaderDriverInterface), and for Windows its registry keys.
#include "tools/tq-run/engine/drivers.h"
#include "base/cache_directory.h"
#include "base/checksum.h"
#include "base/child_process.h"
#include "base/environment.h"
#include "base/error.h"
#include "base/executable.h"
#include "base/interrupt.h"
#include "base/path_text.h"
#include "base/printable.h"
#ifdef _WIN32
#include "base/registry.h"
#endif
#include "base/text.h"
#include "tools/check/conformance/report.h"
#include "tools/tq-run/cli/console.h"
#include "tools/tq-run/engine/verdict_file.h"
#include <algorithm>
#include <optional>

namespace tq {
namespace {

namespace fs = std::filesystem;
using conformance::Json;

constexpr uint32_t default_seconds = 30;

std::string variable(const char* name, const std::string& otherwise = "") {
    return environment_variable(name).value_or(otherwise);
}

// Returns the file itself, or the .json files of a directory; nothing for an empty path.
void add_manifests(std::vector<fs::path>& to, const fs::path& path) {
    std::error_code error;
    std::vector<fs::path> found;
    if (fs::is_directory(path, error)) {
        for (fs::directory_iterator at(path, error), end; !error && at != end; at.increment(error))
            if (at->path().extension() == ".json") found.push_back(at->path());
    } else if (fs::exists(path, error)) {
        found.push_back(path);
    }
    std::ranges::sort(found);
    for (const fs::path& one : found)
        if (std::ranges::find(to, one) == to.end()) to.push_back(one);
}

// Where the loader looks: a folder, and in Windows' registry a key of its own, and a value that a device's driver has.
struct Installed {
    const char *folder, *key, *value;
};
constexpr Installed installed_drivers{"icd.d", "Drivers", "VulkanDriverName"};
constexpr Installed installed_layers{"implicit_layer.d", "ImplicitLayers", "VulkanImplicitLayers"};

#ifdef _WIN32
void add_installed(std::vector<fs::path>& to, const Installed& kind) {
    // Display adapters, and the software that comes with their drivers.
    for (const char* device_class : {"{4d36e968-e325-11ce-bfc1-08002be10318}", "{5c4c3332-344d-483c-8739-259e934c9cc8}"})
        for (const std::string& one : registry_texts_below(
                 RegistryRoot::machine, std::string(R"(SYSTEM\CurrentControlSet\Control\Class\)") + device_class, kind.value))
            add_manifests(to, utf8_path(one));
    for (const RegistryRoot root : {RegistryRoot::machine, RegistryRoot::user})
        for (const std::string& one : registry_names_of_zeros(root, std::string(R"(SOFTWARE\Khronos\Vulkan\)") + kind.key))
            add_manifests(to, utf8_path(one));
}
#else
// Adds the manifests in each directory where the loader looks for configuration and data.
void add_installed(std::vector<fs::path>& to, const Installed& kind) {
    const std::string home = variable("HOME");
    std::vector<std::string> places{variable("XDG_CONFIG_HOME", home + "/.config")};
    const auto add = [&](const std::string& list) {
        for (std::string& one : split(list, path_separator))
            if (!one.empty()) places.push_back(std::move(one));
    };
    add(variable("XDG_CONFIG_DIRS", "/etc/xdg"));
    add("/usr/local/etc:/etc:/opt/homebrew/etc");
    places.push_back(variable("XDG_DATA_HOME", home + "/.local/share"));
    add(variable("XDG_DATA_DIRS", "/usr/local/share:/usr/share"));
    add("/opt/homebrew/share");
    for (const std::string& place : places) add_manifests(to, utf8_path(place) / "vulkan" / kind.folder);
}
#endif

// "PATH SIZE TIME" of a file or directory.
std::string stamp(const fs::path& path) {
    std::error_code error;
    const auto time = fs::last_write_time(path, error).time_since_epoch().count();
    std::error_code no_size;
    const uintmax_t bytes = fs::file_size(path, no_size);
    return error ? "" : fmt::format("{} {} {}\n", utf8_text(path), no_size ? 0 : bytes, time);
}

// Everything that tells these drivers and their surroundings from others: the files that change when one is installed too, since
// a manifest may name a library that is elsewhere.
std::string survey_key() {
    std::string text = driver_surroundings();
    for (const fs::path& manifest : driver_manifests()) text += stamp(manifest);
    for (const fs::path& place : {fs::path("/etc/ld.so.cache"), utf8_path(variable("SystemRoot", "C:\\Windows")) / "System32" /
                                                                    "DriverStore" / "FileRepository"})
        text += stamp(place);
    return fmt::format("{:016x}", checksum(std::as_bytes(std::span(text))));
}

void apply(const std::vector<fs::path>& left) {
    for (const std::string& assignment : only_drivers(left)) {
        const size_t equals = assignment.find('=');
        set_environment_variable(assignment.substr(0, equals), assignment.substr(equals + 1));
    }
}

// Finds the drivers that listing does not survive: {"left": [...], "said": "..."}, without "left" if all do.
// Drivers may also fail only together. If each survives alone, or if the survivors fail together, none is used: which one is to
// blame cannot be told.
Json survey() {
    const std::string death = list_apart({}).death;
    if (death.empty()) return Json::object();
    std::vector<fs::path> left;
    std::string culprits;
    for (const fs::path& one : driver_manifests()) {
        const std::string end = list_apart({one}).death;
        if (end.empty())
            left.push_back(one);
        else
            culprits += fmt::format("{}{} ({})", culprits.empty() ? "" : ", ", utf8_text(one), end);
    }
    if (!left.empty() && (culprits.empty() || !list_apart(left).death.empty())) left.clear();
    Json paths = Json::array();
    for (const fs::path& one : left) paths.push_back(utf8_text(one));
    const std::string who = culprits.empty() ? fmt::format("together ({})", death) : culprits;
    return {{"left", paths},
            {"said", fmt::format("listing the devices of Vulkan drivers crashes or hangs, so {}: {}",
                                 left.empty() ? "none is used" : "these are left out", who)}};
}

} // namespace

// VK_DRIVER_FILES and its older name replace what is installed; VK_ADD_DRIVER_FILES adds to it.
std::vector<fs::path> driver_manifests() {
    std::vector<fs::path> out;
    for (const char* name : {"VK_DRIVER_FILES", "VK_ICD_FILENAMES"}) {
        for (const std::string& one : split(variable(name), path_separator)) add_manifests(out, utf8_path(one));
        if (!out.empty()) return out;
    }
    for (const std::string& one : split(variable("VK_ADD_DRIVER_FILES"), path_separator)) add_manifests(out, utf8_path(one));
    add_installed(out, installed_drivers);
    return out;
}

std::vector<fs::path> layer_manifests() {
    std::vector<fs::path> out;
    for (const char* name : {"VK_IMPLICIT_LAYER_PATH", "VK_ADD_IMPLICIT_LAYER_PATH"})
        for (const std::string& one : split(variable(name), path_separator)) add_manifests(out, utf8_path(one));
    if (variable("VK_IMPLICIT_LAYER_PATH").empty()) add_installed(out, installed_layers);
    return out;
}

uint32_t proving_seconds() {
    const std::string text = variable("TQ_PROVE");
    uint32_t seconds = default_seconds;
    if (text.empty()) return seconds;
    if (!parse_number(text, seconds) || seconds > 3600)
        fail("TQ_PROVE is \"{}\"; it can be the seconds that a driver may take for an answer, up to 3600, or 0 to check none",
             printable(text));
    return seconds;
}

conformance::RunnerOptions worker_options(std::vector<std::string> flags, std::vector<std::string> environment) {
    const fs::path program = executable_path();
    if (program.empty()) fail("this system does not say where the running program is, so that no worker can be started");
    conformance::RunnerOptions options;
    options.worker = {utf8_text(program), "conformance", "--worker"};
    options.worker.insert(options.worker.end(), flags.begin(), flags.end());
    options.environment = std::move(environment);
    options.timeout = std::chrono::seconds(proving_seconds() == 0 ? default_seconds : proving_seconds());
    options.interrupted = interrupted;
    options.on_begin = options.on_result = [](size_t, const std::vector<conformance::RowResult>&) {};
    return options;
}

std::string report_command(const std::string& device) {
    return fmt::format("tq-run conformance --device {} --json report.json --dump failed", device);
}

std::string driver_surroundings() {
    std::string text;
    const Json variables = conformance::driver_environment();
    for (const auto& [name, value] : variables.items())
        if (!name.starts_with("TQ_")) text += fmt::format("{}={}\n", name, value.get<std::string>());
    std::vector<fs::path> layers = layer_manifests();
    for (const char* name : {"VK_LAYER_PATH", "VK_ADD_LAYER_PATH"}) // of layers that VK_INSTANCE_LAYERS may name
        for (const std::string& one : split(variable(name), path_separator)) add_manifests(layers, utf8_path(one));
    for (const fs::path& manifest : layers) text += stamp(manifest);
    return text;
}

std::vector<std::string> only_drivers(const std::vector<fs::path>& manifests) {
    std::string list;
    for (const fs::path& one : manifests) list += (list.empty() ? "" : path_separator) + utf8_text(one);
    return {"VK_DRIVER_FILES=" + list, "VK_ICD_FILENAMES=" + list, "VK_ADD_DRIVER_FILES="}; // older loaders know the second
}

conformance::Listing list_apart(const std::vector<fs::path>& manifests) {
    return list_devices_apart(worker_options({}, manifests.empty() ? std::vector<std::string>() : only_drivers(manifests)));
}

// Must be called before the first call of the loader in this process, since the loader reads the variables then. Returns false
// if no driver can be used.
bool survey_drivers() {
    static std::optional<bool> known; // by this process
    if (proving_seconds() == 0) return true;
    if (known) return *known;
    const fs::path directory = cache_directory(), file = directory.empty() ? fs::path() : directory / "drivers.json";
    const std::string key = survey_key();
    std::optional<Json> found = recall(file, key);
    if (!found) {
        found = survey();
        if (!interrupted()) remember(file, key, *found);
    }
    known = true;
    const Json left = found->value("left", Json());
    if (!left.is_array()) return true;
    std::vector<fs::path> paths;
    for (const Json& one : left)
        if (one.is_string()) paths.push_back(utf8_path(one.get<std::string>()));
    write_error(fmt::format("tq-run: {}; tq-run doctor tells more\n", text_of(*found, "said")));
    known = !paths.empty();
    if (*known) apply(paths);
    return *known;
}

} // namespace tq
