// Opens a model in any supported format.
#pragma once
#include "model/files/formats/model_file.h"

namespace tq {

// Opens a GGUF file (or any part of a split one), a Hugging Face directory, or the config.json, a .safetensors file or its
// index in such a directory. Throws an Error that says what was found instead.
ModelFile open_model_file(const std::filesystem::path& path);

} // namespace tq
