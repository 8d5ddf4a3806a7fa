// The directory for files that can be made again.
#pragma once
#include <filesystem>

namespace tq {

// Returns $TQ_CACHE_DIR, else tq-run in $XDG_CACHE_HOME, %LOCALAPPDATA% or ~/.cache; empty if the environment names no
// directory. The directory need not exist.
std::filesystem::path cache_directory();

} // namespace tq
