// The keys of a GGUF file that a model is written to.
#pragma once
#include "model/files/formats/gguf_writer.h"
#include "model/model.h"

namespace tq {

// Sets them: of a GGUF file its own, but for those of its division into parts and of its alignment; of a Hugging Face directory
// those that its files give, as llama.cpp's converter names and types them. `file_type`: general.file_type of the new file.
void put_gguf_keys(GgufWriter& writer, const Model& model, uint32_t file_type);

} // namespace tq
