// GGUF v2/v3 (ggml's docs/gguf.md): a memory-mapped file of typed metadata and tensors. Everything in it is hostile until
// checked.
#pragma once
#include "model/formats/model_file.h"

namespace tq {

// Throws an Error that names the file, the key or tensor, and the numbers that do not fit.
ModelFile read_gguf(const std::filesystem::path& path);

} // namespace tq
