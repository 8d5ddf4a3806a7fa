// A model as Hugging Face publishes it: config.json, generation_config.json, safetensors, and the files of its tokenizer, read
// into the metadata and the tensor names that GGUF has for the same things.
#pragma once
#include "model/files/formats/model_file.h"

namespace tq {

// Reads the whole directory. Throws an Error that names the file and its own key.
ModelFile read_huggingface(const std::filesystem::path& directory);

// Reads config.json and, if it exists, generation_config.json: shape, scaling and end-of-generation ids become the keys of its
// architecture and tokenizer.ggml.*, recommended sampling becomes general.sampling.*.
void read_huggingface_config(ModelFile& file, const std::filesystem::path& directory);

// Reads tokenizer.json, or vocab.json with merges.txt, into tokenizer.ggml.*, padded to `vocab_size` tokens (0: no padding);
// and the chat template, from chat_template.jinja or tokenizer_config.json.
void read_huggingface_tokenizer(ModelFile& file, const std::filesystem::path& directory, uint64_t vocab_size);

// Returns GGUF's name of a tensor of PyTorch: blk.3.attn_q.weight of model.layers.3.self_attn.q_proj.weight, also without its
// "model.". Other names are returned unchanged. An expert's matrix has the name that it has in GGUF files whose experts are not
// stacked: blk.3.ffn_up.7.weight.
std::string gguf_tensor_name(const std::string& name);

} // namespace tq
