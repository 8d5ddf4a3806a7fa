// The shape of a model, by the names of Qwen's config.json.
#pragma once
#include "model/files/formats/architecture.h"
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

namespace tq {

enum class RopeScalingType { none, linear, yarn };

const char* name(RopeScalingType type);                    // "none", "linear", "yarn"
RopeScalingType parse_rope_scaling(std::string_view name); // throws Error that lists them

// The scaling of rotary positions beyond the trained context: model/rope.h has the formulas. The names are llama.cpp's; its
// attn_factor multiplies YaRN's own attention scale.
struct RopeScaling {
    RopeScalingType type = RopeScalingType::none;
    float factor = 1;
    uint32_t original_context_length = 0; // the trained context
    float attn_factor = 1;
    float beta_fast = 32; // rotations within the original context: pairs with more keep their positions,
    float beta_slow = 1;  // pairs with fewer are stretched in full
};

// The recurrent layers of a hybrid: a gated DeltaNet (Yang, Kautz, Hatamizadeh, "Gated Delta Networks: Improving Mamba2 with
// Delta Rule"). Instead of keys and values of each token, such a layer has one state for each sequence: a matrix for each value
// head, and the last rows that the convolution before it needs.
struct Recurrent {
    uint32_t key_heads, value_heads; // of value_heads / key_heads value heads each has the queries and keys of one key head
    uint32_t head_dim;               // of queries, keys and values
    uint32_t conv_kernel;            // tokens that the convolution of a channel spans, its own included
    bool tiled_heads;                // which key head: key_head()

    uint32_t key_head(uint32_t value_head) const {
        return tiled_heads ? value_head % key_heads : value_head / (value_heads / key_heads);
    }
    uint32_t key_size() const { return key_heads * head_dim; }
    uint32_t value_size() const { return value_heads * head_dim; }
    uint32_t channels() const { return 2 * key_size() + value_size(); } // of the convolution: queries, keys, values
    // The state of a layer in fp32: the matrices [value_heads][head_dim keys][head_dim values], and after them the last rows
    // before the convolution, [conv_kernel - 1][channels], the oldest first. All are 0 at the start of a sequence.
    uint64_t matrix_floats() const { return uint64_t(value_size()) * head_dim; }
    uint64_t history_floats() const { return uint64_t(conv_kernel - 1) * channels(); }
    uint64_t state_bytes() const { return 4 * (matrix_floats() + history_floats()); }
    // Floats kept for a token whose update of the state is pending (Cache::settled()): its row before the convolution, the row
    // after it and the norms, [channels] each, and beta and alpha of each value head, [value_heads][2].
    uint64_t pending_floats() const { return 2 * uint64_t(channels()) + 2 * value_heads; }
};

constexpr uint64_t max_layers = 1024; // the maximum number of layers
constexpr uint32_t max_experts = 512, max_experts_per_tok = 16;
constexpr uint32_t max_context = 1u << 24; // tokens; positions, which kernels compare as floats, are exact in one up to here

struct Config {
    uint32_t vocab_size;
    uint32_t hidden_size;
    uint32_t intermediate_size; // of a mixture of experts: num_experts_per_tok * moe_intermediate_size
    uint32_t num_hidden_layers;
    uint32_t num_attention_heads;
    uint32_t num_key_value_heads;
    uint32_t head_dim;                // often not hidden_size / num_attention_heads
    uint32_t max_position_embeddings; // after rope_scaling; at most max_context
    float rope_theta;
    float rms_norm_eps;
    RopeScaling rope_scaling = {};
    std::vector<float> rope_factors = {}; // the angle of each pair of a head is divided by its own; empty: by 1
    // Mixture of experts; 0 in dense models.
    uint32_t num_experts = 0, num_experts_per_tok = 0, moe_intermediate_size = 0;
    bool norm_topk_prob = true; // the weights of a token's experts are divided by their sum
    const Architecture* architecture = &architectures[0];
    // Hybrids.
    std::optional<Recurrent> recurrent = {};      // if a layer is recurrent
    std::vector<bool> recurrent_layers = {};      // which layers are; empty: none
    uint32_t rotary_dim = 0;                      // channels of a head that RoPE turns, pairs (i, i + rotary_dim / 2); 0: all
    bool gated_attention = false;                 // attn_q has the rows of each head's query, and after them those of its gate
    uint32_t shared_expert_intermediate_size = 0; // of the expert that all tokens have; 0: there is none
    uint32_t nextn_predict_layers = 0;            // layers of heads for multi-token prediction, after the last one
    bool mtp = false;                             // the first of these heads is loaded, and proposes tokens (MtpWeights)

    bool is_recurrent(uint32_t layer) const { return layer < recurrent_layers.size() && recurrent_layers[layer]; }
    uint32_t attention_layers() const; // those that are not recurrent
    // Layers of the cache: all layers of the model, plus one if the head for multi-token prediction is loaded.
    uint32_t cache_layers() const { return num_hidden_layers + (mtp ? 1 : 0); }
    // Bytes of one sequence's recurrent states, all layers, and of the hidden state that the head for multi-token prediction
    // continues from; 0 if the model has neither.
    uint64_t state_bytes() const;
    // Additional bytes of a sequence if up to `pending` tokens can be pending (Cache::settled()): the tokens of all recurrent
    // layers, and the hidden states of that head.
    uint64_t pending_bytes(uint32_t pending) const;
    bool has_states() const { return recurrent.has_value() || mtp; }
    uint32_t rotary() const { return rotary_dim == 0 ? head_dim : rotary_dim; }
    uint32_t q_rows() const { return num_attention_heads * head_dim * (gated_attention ? 2 : 1); } // of attn_q
    // The eps of the norms of heads of queries and keys, if the architecture has them.
    std::optional<float> head_norm_eps() const { return architecture->qk_norm ? std::optional(rms_norm_eps) : std::nullopt; }
};

// Overrides of the numbers in the model file; the flags have the same names.
struct RopeOverrides {
    std::optional<RopeScalingType> type;
    std::optional<float> factor, theta, attn_factor, beta_fast, beta_slow;
    std::optional<uint32_t> original_context_length;
};

// Returns `config` with the overrides, and the max_position_embeddings that result. A factor alone applies to the file's type,
// or to linear scaling if the file has none. Throws Error if flags contradict each other.
Config with_rope(Config config, const RopeOverrides& overrides);

// Reads and checks the keys of the file's architecture. Throws an Error naming the key and value when that is not in the table, a
// key is missing, or the shape is not supported (sizes of 0, sizes that are not a multiple of 32, heads not a multiple of kv
// heads, a GQA ratio over 16, a head_dim other than 64, 128 or 256, more experts than max_experts, a theta below 1 or an eps of
// 0, RoPE scaling other than linear, YaRN and Llama 3's, recurrent heads of another size than 128, a hybrid without attention). A
// vocabulary-only file is accepted: its vocab_size is the length of its vocabulary. mtp: the model's head for multi-token
// prediction is wanted, too; throws Error if it has none, or several.
Config read_config(const ModelFile& file, bool mtp = false);

} // namespace tq
