#include "runtime/device_files.h"
#include "base/cache_directory.h"
#include <fmt/format.h>

namespace tq {

std::filesystem::path device_file(const Capabilities& device, std::string_view suffix) {
    const std::filesystem::path directory = cache_directory();
    if (directory.empty()) return {};
    std::string uuid;
    for (const uint8_t byte : device.pipeline_cache_uuid) uuid += fmt::format("{:02x}", byte);
    return directory /
           fmt::format("{:04x}-{:04x}-{:08x}-{}{}", device.vendor_id, device.device_id, device.driver_version, uuid, suffix);
}

} // namespace tq
