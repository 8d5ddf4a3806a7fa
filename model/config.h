// The shape of a dense Qwen3 model, by the names of Qwen's config.json.
#pragma once
#include "model/formats/model_file.h"
#include <cstdint>

namespace tq {

struct Config {
    uint32_t vocab_size;
    uint32_t hidden_size;
    uint32_t intermediate_size;
    uint32_t num_hidden_layers;
    uint32_t num_attention_heads;
    uint32_t num_key_value_heads;
    uint32_t head_dim; // never hidden_size / num_attention_heads
    uint32_t max_position_embeddings;
    float rope_theta;
    float rms_norm_eps;
};

// Reads and checks the qwen3.* keys. Throws an Error naming the key and value when the file is of another architecture, a key
// is missing, or a shape is one we cannot run (sizes of 0, sizes that are not a multiple of 32, heads not a multiple of kv heads,
// a GQA ratio over 8, a head_dim other than 64, 128 or 256, a theta below 1 or an eps of 0, RoPE scaling other than none).
// A vocabulary-only file passes: its vocab_size is the length of its vocabulary.
Config read_config(const ModelFile& file);

} // namespace tq
