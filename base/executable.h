// The running program, and the machine it runs on.
#pragma once
#include <filesystem>
#include <string>

namespace tq {

// The program itself, to be started again. Empty where the system does not tell.
std::filesystem::path executable_path();

// Where it lies, for the files that are installed beside it. Empty likewise.
inline std::filesystem::path executable_directory() { return executable_path().parent_path(); }

// "Linux 6.1.0 x86_64"
std::string system_name();

} // namespace tq
