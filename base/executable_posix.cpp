#include "base/executable.h"
#ifdef __APPLE__
#include <cstdint>
#include <mach-o/dyld.h>
#include <string>
#endif

namespace tq {

std::filesystem::path executable_directory() {
    std::error_code error;
#ifdef __APPLE__
    uint32_t bytes = 0;
    ::_NSGetExecutablePath(nullptr, &bytes);
    std::string path(bytes, '\0');
    if (::_NSGetExecutablePath(path.data(), &bytes) != 0) return {};
    const auto file = std::filesystem::canonical(path.c_str(), error);
#else
    const auto file = std::filesystem::read_symlink("/proc/self/exe", error);
#endif
    return error ? std::filesystem::path() : file.parent_path();
}

} // namespace tq
