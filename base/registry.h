// Reads Windows' registry. Windows only: registry_windows.cpp.
#pragma once
#include <string>
#include <vector>

namespace tq {

enum class RegistryRoot { machine, user };

// Returns the names, in UTF-8, of a key's values that are the number 0; empty if there is no such key.
std::vector<std::string> registry_names_of_zeros(RegistryRoot root, const std::string& key);

// Returns the texts of the values NAME in each key directly below a key. A value that is a list gives several texts.
std::vector<std::string> registry_texts_below(RegistryRoot root, const std::string& key, const std::string& name);

} // namespace tq
