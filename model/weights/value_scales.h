// Channel scaling of values, from the weights on both sides of them. turboquant.md, "Conditioning".
#pragma once
#include "base/thread_pool.h"
#include "model/weights/weights.h"

namespace tq {

// Sums of squares of a layer's weights: what its values are as large as, were hidden states even, and what they are multiplied
// by.
struct ValueSquares {
    std::vector<double> values;  // of attn_v's rows, times attn_norm, and its bias: [kv_heads * head_dim]
    std::vector<double> columns; // of attn_output's columns, over some of its rows: [heads * head_dim]
};

// Both are empty where the layer's attention is held elsewhere (held_weights()). The same bits on every machine and for any
// number of threads. The weights have been checked to be finite. Throws Error naming a file that has been truncated.
ValueSquares value_squares(ThreadPool& pool, const LayerWeights& weights);

// Returns what each channel of values is divided by before it is stored, and attention's output multiplied by: powers of two,
// [kv_heads][head_dim]. Empty where the squares are.
std::vector<float> value_scales(const Config& config, const ValueSquares& squares);

} // namespace tq
