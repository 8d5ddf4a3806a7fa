#include "runtime/device_files.h"
#include <cstdlib>
#include <fmt/format.h>

namespace tq {
namespace {

std::filesystem::path cache_directory() {
    const std::pair<const char*, const char*> places[] = {
        {"TQ_CACHE_DIR", ""}, {"XDG_CACHE_HOME", "tq-run"}, {"LOCALAPPDATA", "tq-run"}, {"HOME", ".cache/tq-run"}};
    for (const auto& [variable, below] : places) {
        const char* value = std::getenv(variable);
        if (value && *value) return std::filesystem::path(value) / below;
    }
    return {};
}

} // namespace

std::filesystem::path device_file(const Capabilities& device, std::string_view suffix) {
    const std::filesystem::path directory = cache_directory();
    if (directory.empty()) return {};
    std::string uuid;
    for (const uint8_t byte : device.pipeline_cache_uuid) uuid += fmt::format("{:02x}", byte);
    return directory /
           fmt::format("{:04x}-{:04x}-{:08x}-{}{}", device.vendor_id, device.device_id, device.driver_version, uuid, suffix);
}

} // namespace tq
