#include "base/cache_directory.h"
#include <cstdlib>
#include <utility>

namespace tq {

std::filesystem::path cache_directory() {
    const std::pair<const char*, const char*> places[] = {
        {"TQ_CACHE_DIR", ""}, {"XDG_CACHE_HOME", "tq-run"}, {"LOCALAPPDATA", "tq-run"}, {"HOME", ".cache/tq-run"}};
    for (const auto& [variable, below] : places) {
        const char* value = std::getenv(variable);
        if (value && *value) return std::filesystem::path(value) / below;
    }
    return {};
}

} // namespace tq
