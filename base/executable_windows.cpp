#include "base/executable.h"
#include "base/wide_text.h"
#include <windows.h>

#include <shellapi.h> // after windows.h

namespace tq {

// main's own are in the code page of the system's language.
std::vector<std::string> program_arguments(int, char**) {
    int count = 0;
    wchar_t** const all = ::CommandLineToArgvW(::GetCommandLineW(), &count);
    std::vector<std::string> out;
    for (int i = 1; i < count; i++) out.push_back(narrow_text(all[i]));
    ::LocalFree(all);
    return out;
}

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
