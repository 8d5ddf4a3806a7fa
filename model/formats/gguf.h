// GGUF v2/v3 (ggml's docs/gguf.md): a memory-mapped file of typed metadata and tensors. Everything in it is hostile until
// checked.
#pragma once
#include "model/formats/model_file.h"

namespace tq {

// Of a split model (NAME-00001-of-00003.gguf) any part may be given: the result has the first part's metadata and the tensors of
// all. Throws an Error that names the file, the key or tensor, and the numbers that do not fit.
ModelFile read_gguf(const std::filesystem::path& path);

} // namespace tq
