#include "base/environment.h"
#include "base/wide_text.h"
#include <cstdlib>
#include <windows.h>

namespace tq {

std::optional<std::string> environment_variable(const std::string& name) {
    const std::wstring wide_name = wide_text(name);
    std::wstring value(::GetEnvironmentVariableW(wide_name.c_str(), nullptr, 0), L'\0'); // with the zero at its end
    if (value.empty()) return std::nullopt;
    value.resize(::GetEnvironmentVariableW(wide_name.c_str(), value.data(), DWORD(value.size())));
    return value.empty() ? std::nullopt : std::optional(narrow_text(value));
}

std::vector<std::string> environment_variables() {
    std::vector<std::string> all;
    wchar_t* const block = ::GetEnvironmentStringsW();
    for (const wchar_t* entry = block; *entry != 0; entry += std::wcslen(entry) + 1) all.push_back(narrow_text(entry));
    ::FreeEnvironmentStringsW(block);
    return all;
}

// The C library's copy, which libraries read, and the system's, which the Vulkan loader reads.
void set_environment_variable(const std::string& name, const std::string& value) {
    ::_wputenv_s(wide_text(name).c_str(), wide_text(value).c_str());
}

} // namespace tq
