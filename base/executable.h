// Where the running program lies, for the files that are installed beside it.
#pragma once
#include <filesystem>

namespace tq {

// Empty where the system does not tell.
std::filesystem::path executable_directory();

} // namespace tq
