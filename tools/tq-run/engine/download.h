// Downloads models from the hub, with progress on the status line.
#pragma once
#include "tools/tq-run/cli/arguments.h"
#include <filesystem>

namespace tq {

// Downloads the model of `source.repository` and returns its path. Ctrl-C stops that. Throws Error or DownloadStopped.
std::filesystem::path download_model(const ModelSource& source, Console& console);

} // namespace tq
