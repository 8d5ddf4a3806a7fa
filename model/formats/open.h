// A model of any kind that we read, found by what the path leads to.
#pragma once
#include "model/formats/model_file.h"

namespace tq {

// A GGUF file (or any part of a split one), a directory as on Hugging Face, or the config.json, a .safetensors file or its index
// in such a directory. Throws an Error that says what is there instead.
ModelFile open_model_file(const std::filesystem::path& path);

} // namespace tq
