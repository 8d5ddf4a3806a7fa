// Copies of a GGUF file in which some keys have other values.
#pragma once
#include "model/files/formats/model_file.h"
#include <filesystem>
#include <map>
#include <string>

namespace tq::test {

// Writes `from` to `to` with these keys, in place of its own or beside them.
void write_changed(const std::filesystem::path& to, const std::filesystem::path& from,
                   const std::map<std::string, ModelFile::Value>& keys);

} // namespace tq::test
