// GGUF v2/v3 (ggml's docs/gguf.md): a memory-mapped file of typed metadata and tensors. Its content is untrusted until checked.
#pragma once
#include "model/files/formats/model_file.h"

namespace tq {

// Reads a file, or a split model (NAME-00001-of-00003.gguf) from any of its parts: the result has the first part's metadata and
// the tensors of all. Throws an Error that names the file, the key or tensor, and the numbers that do not fit.
ModelFile read_gguf(const std::filesystem::path& path);

} // namespace tq
