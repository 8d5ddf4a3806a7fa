// The architectures that tq-run runs, in one table: what distinguishes them, and how files name them. All are decoders with RMS
// norms, grouped-query attention, RoPE and SwiGLU; a mixture of experts has many SwiGLUs per layer. Hybrids have attention in
// some layers and a recurrence in the others.
#pragma once
#include "model/files/formats/model_file.h"
#include <string>
#include <string_view>

namespace tq {

// The rows of a head of q and k that RoPE turns together, in GGUF files: i and i + head_dim / 2, or 2 i and 2 i + 1. In Hugging
// Face's they are always the halves, which weights.h makes of the others.
enum class RopePairs { split, neighbours };

// Defaults are the values of most architectures.
struct Architecture {
    std::string_view name;       // GGUF's general.architecture, with which its keys begin
    std::string_view model_type; // of config.json
    std::string_view class_name; // its "architectures"
    bool qk_norm = true;         // the heads of q and k are normalised before RoPE
    bool qkv_bias = false;       // q, k and v may have biases
    bool experts = false;        // its feed-forward is a mixture of experts
    RopePairs gguf_pairs = RopePairs::split;
    bool rope_factors = false; // files may have rope_freqs.weight
    // complete: every file has the keys of head_dim, num_key_value_heads and rope_theta. For other architectures they default to
    // hidden_size / num_attention_heads, num_attention_heads and 10000, as in llama.cpp and transformers.
    bool complete = true;
    // Most layers are recurrent (gated DeltaNet, model/config.h). The output of the others' attention is multiplied by gates,
    // RoPE turns a part of each head, and each mixture of experts has an expert that all tokens share.
    bool hybrid = false;
    bool tiled_heads = false;               // of a hybrid: Recurrent::tiled_heads of its GGUF files
    std::string_view ffn_norm = "ffn_norm"; // the tensor of the norm before the feed-forward

    std::string key(std::string_view rest) const; // "qwen3.block_count" of "block_count"
};

inline constexpr Architecture architectures[] = {
    {.name = "qwen3", .model_type = "qwen3", .class_name = "Qwen3ForCausalLM"},
    {.name = "qwen3moe", .model_type = "qwen3_moe", .class_name = "Qwen3MoeForCausalLM", .experts = true, .complete = false},
    {.name = "qwen2",
     .model_type = "qwen2",
     .class_name = "Qwen2ForCausalLM",
     .qk_norm = false,
     .qkv_bias = true,
     .complete = false},
    {.name = "llama",
     .model_type = "llama",
     .class_name = "LlamaForCausalLM",
     .qk_norm = false,
     .gguf_pairs = RopePairs::neighbours,
     .rope_factors = true,
     .complete = false},
    {.name = "qwen35",
     .model_type = "qwen3_5",
     .class_name = "Qwen3_5ForConditionalGeneration",
     .hybrid = true,
     .tiled_heads = true,
     .ffn_norm = "post_attention_norm"},
    {.name = "qwen35moe",
     .model_type = "qwen3_5_moe",
     .class_name = "Qwen3_5MoeForConditionalGeneration",
     .experts = true,
     .hybrid = true,
     .tiled_heads = true,
     .ffn_norm = "post_attention_norm"},
    {.name = "qwen3next",
     .model_type = "qwen3_next",
     .class_name = "Qwen3NextForCausalLM",
     .experts = true,
     .hybrid = true,
     .ffn_norm = "post_attention_norm"},
};

std::string architecture_names(); // "qwen3, qwen3moe, qwen2, llama, qwen35, qwen35moe, qwen3next"
std::string model_types();        // "qwen3, qwen3_moe, qwen2, llama, qwen3_5, qwen3_5_moe, qwen3_next"

// Returns the row of the table that general.architecture names. Throws an Error that lists them for any other.
const Architecture& architecture_of(const ModelFile& file);

// Returns the row of a config.json's model_type; nullptr if there is none.
const Architecture* find_model_type(std::string_view model_type);

} // namespace tq
