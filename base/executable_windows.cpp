#define WIN32_LEAN_AND_MEAN
#define NOMINMAX
#include "base/executable.h"
#include <windows.h>

namespace tq {

std::filesystem::path executable_directory() {
    std::wstring path(32768, L'\0'); // the longest path there is
    const DWORD length = ::GetModuleFileNameW(nullptr, path.data(), DWORD(path.size()));
    if (length == 0 || length == path.size()) return {};
    path.resize(length);
    return std::filesystem::path(path).parent_path();
}

} // namespace tq
