// This process's environment, in UTF-8 on every system. POSIX: environment_posix.cpp, Windows: environment_windows.cpp.
#pragma once
#include <optional>
#include <string>
#include <vector>

namespace tq {

#ifdef _WIN32
inline constexpr const char* path_separator = ";"; // between the paths of a variable
#else
inline constexpr const char* path_separator = ":";
#endif

// Returns the value of a variable; nothing if it is not set, or is empty.
std::optional<std::string> environment_variable(const std::string& name);

// Returns all variables as NAME=value; and with `changes`.
std::vector<std::string> environment_variables();
std::vector<std::string> merged_environment(const std::vector<std::string>& changes);

// For this process and its later children. Not while another thread reads the environment.
void set_environment_variable(const std::string& name, const std::string& value);

} // namespace tq
