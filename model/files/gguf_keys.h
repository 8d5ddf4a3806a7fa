// The keys of a GGUF file that a model is written to.
#pragma once
#include "model/files/formats/gguf_writer.h"
#include "model/model.h"

namespace tq {

// Sets the keys: a GGUF file's own, except those of its division into parts and of its alignment; or those that the files of a
// Hugging Face directory give, as llama.cpp's converter names and types them. `file_type`: general.file_type of the new file.
void put_gguf_keys(GgufWriter& writer, const Model& model, uint32_t file_type);

// Returns what the user should know of them: settings of a Hugging Face directory that llama.cpp does not follow in GGUF files.
std::vector<std::string> notes_on_gguf_keys(const Model& model);

} // namespace tq
