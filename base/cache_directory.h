// Where files are kept that can be made again.
#pragma once
#include <filesystem>

namespace tq {

// $TQ_CACHE_DIR, else tq-run in $XDG_CACHE_HOME, %LOCALAPPDATA% or ~/.cache. Empty where the environment names no place. It need
// not be there.
std::filesystem::path cache_directory();

} // namespace tq
