// Files that are kept for a device between runs.
#pragma once
#include "runtime/capabilities.h"
#include <filesystem>
#include <string_view>

namespace tq {

// A path for each device and driver version, which ends in `suffix`, in base/cache_directory.h's. Empty where there is none.
std::filesystem::path device_file(const Capabilities& device, std::string_view suffix);

} // namespace tq
