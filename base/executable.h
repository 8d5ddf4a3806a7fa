// The running program, and the machine it runs on.
#pragma once
#include <filesystem>
#include <string>
#include <vector>

namespace tq {

// Returns the arguments of main() without the program's name, in UTF-8 even if the system passes them in another encoding.
std::vector<std::string> program_arguments(int count, char** values);

// Returns the program's own path, with which it can be started again; empty if the system does not tell.
std::filesystem::path executable_path();

// Returns the directory of the program, for the files that are installed beside it; empty if the system does not tell.
inline std::filesystem::path executable_directory() { return executable_path().parent_path(); }

// Returns a text such as "Linux 6.1.0 x86_64".
std::string system_name();

} // namespace tq
