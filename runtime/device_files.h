// Files that are kept for a device between runs.
#pragma once
#include "runtime/capabilities.h"
#include <filesystem>
#include <string_view>

namespace tq {

// A path for each device and driver version, which ends in `suffix`, in $TQ_CACHE_DIR, else in tq-run in $XDG_CACHE_HOME,
// %LOCALAPPDATA% or ~/.cache. Empty where the environment names no place.
std::filesystem::path device_file(const Capabilities& device, std::string_view suffix);

} // namespace tq
