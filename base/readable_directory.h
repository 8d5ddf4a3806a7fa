// Tells a directory that is empty or not there from one that cannot be read.
#pragma once
#include <filesystem>

namespace tq {

// Returns false if there is nothing at this path. Throws an Error with the reason if it is no directory that can be read.
bool directory_is_there(const std::filesystem::path& path);

} // namespace tq
