// Models from the hub, with their progress on the status line.
#pragma once
#include "tools/tq-run/arguments.h"
#include <filesystem>

namespace tq {

// Where the model of `source.repository` lies, after its download. Ctrl-C stops that. Throws Error or DownloadStopped.
std::filesystem::path download_model(const ModelSource& source, Console& console);

} // namespace tq
