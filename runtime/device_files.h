// Files that are kept for a device between runs.
#pragma once
#include "runtime/capabilities.h"
#include <filesystem>
#include <string_view>

namespace tq {

// Returns a path in cache_directory() for each device and driver version; it ends in `suffix`. Empty if that is empty.
std::filesystem::path device_file(const Capabilities& device, std::string_view suffix);

} // namespace tq
