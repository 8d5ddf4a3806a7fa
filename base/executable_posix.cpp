#include "base/executable.h"
#include <algorithm>
#include <sys/utsname.h>
#ifdef __APPLE__
#include <cstdint>
#include <mach-o/dyld.h>
#endif

namespace tq {

std::vector<std::string> program_arguments(int count, char** values) { return {values + std::min(count, 1), values + count}; }

std::filesystem::path executable_path() {
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
    return error ? std::filesystem::path() : file;
}

std::string system_name() {
    utsname system{};
    if (::uname(&system) < 0) return "an unknown POSIX system";
    return std::string(system.sysname) + ' ' + system.release + ' ' + system.machine;
}

} // namespace tq
