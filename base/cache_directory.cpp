#include "base/cache_directory.h"
#include "base/environment.h"
#include "base/path_text.h"
#include <utility>

namespace tq {

std::filesystem::path cache_directory() {
    const std::pair<const char*, const char*> places[] = {
        {"TQ_CACHE_DIR", ""}, {"XDG_CACHE_HOME", "tq-run"}, {"LOCALAPPDATA", "tq-run"}, {"HOME", ".cache/tq-run"}};
    for (const auto& [variable, below] : places) {
        if (const auto value = environment_variable(variable)) return utf8_path(*value) / below;
    }
    return {};
}

} // namespace tq
