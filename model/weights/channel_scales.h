// Channel scaling of keys and values, from the weights on both sides of them. turboquant.md, "Conditioning".
#pragma once
#include "base/thread_pool.h"
#include "model/kv/conditioning.h"
#include "model/weights/weights.h"

namespace tq {

// Sums of squares of a layer's weights: what its vectors are as large as, were hidden states even, and what values are multiplied
// by.
struct AttentionSquares {
    // Squares of the rows of attn_q and attn_k, times attn_norm, and of their biases: [heads * head_dim], [kv_heads * head_dim].
    // Empty if heads have norms, which tell as much.
    std::vector<double> queries, keys;
    std::vector<double> values;  // of attn_v's rows, times attn_norm, and its bias: [kv_heads * head_dim]
    std::vector<double> columns; // of attn_output's columns, over some of its rows: [heads * head_dim]
};

// All are empty if the layer's attention is held elsewhere (held_weights()). The same bits on every machine and for any
// number of threads. The weights have been checked to be finite. Throws Error naming a file that has been truncated.
AttentionSquares attention_squares(ThreadPool& pool, const LayerWeights& weights);

// Returns the channel scaling of keys in a layer whose heads have no norms; empty if they have. k_bias: attn_k's; empty if
// there is none.
KeyScaling key_scaling(const Config& config, const AttentionSquares& squares, std::span<const float> k_bias);

// Returns the factors by which each channel of values is divided before it is stored, and attention's output multiplied: powers
// of two, [kv_heads][head_dim]. Empty if the squares are.
std::vector<float> value_scales(const Config& config, const AttentionSquares& squares);

} // namespace tq
