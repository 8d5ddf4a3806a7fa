// The tensors of a dense Qwen3 model by name, checked against its Config; they point into the mapped files.
#pragma once
#include "model/config.h"
#include "model/tensor.h"
#include <span>
#include <vector>

namespace tq {

struct LayerWeights {
    Tensor attn_norm, attn_q, attn_k, attn_v, attn_q_norm, attn_k_norm, attn_output;
    Tensor ffn_norm, ffn_gate, ffn_up, ffn_down;
};

struct Weights {
    Tensor token_embd;
    std::vector<LayerWeights> layers;
    Tensor output_norm;
    Tensor output; // the file's output.weight, or token_embd when tied
    bool tied;

    uint64_t bytes() const; // of all tensors in the file's formats, a tied head counted once
};

// Matrices are in any format of blocks.h, norms in F32, F16 or BF16. Throws an Error naming the tensor when one is missing, has
// another shape or a format we cannot run, or is unknown to a dense Qwen3 (a bias would be ignored otherwise).
Weights read_weights(const ModelFile& file, const Config& config);

// Throws an Error naming the first tensor and row with a NaN or infinite weight. Reads every byte once.
void check_finite(const Weights& weights);

} // namespace tq
