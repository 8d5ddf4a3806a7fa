#define WIN32_LEAN_AND_MEAN
#define NOMINMAX
#include "base/executable.h"
#include <windows.h>

namespace tq {

std::filesystem::path executable_path() {
    std::wstring path(32768, L'\0'); // the longest possible path
    const DWORD length = ::GetModuleFileNameW(nullptr, path.data(), DWORD(path.size()));
    if (length == 0 || length == path.size()) return {};
    path.resize(length);
    return path;
}

// The version comes from the registry: GetVersionEx returns the version that a program's manifest names.
std::string system_name() {
    char build[64] = "unknown";
    DWORD bytes = sizeof build;
    ::RegGetValueA(HKEY_LOCAL_MACHINE, R"(SOFTWARE\Microsoft\Windows NT\CurrentVersion)", "CurrentBuildNumber", RRF_RT_REG_SZ,
                   nullptr, build, &bytes);
    return std::string("Windows build ") + build;
}

} // namespace tq
