// The tensors of a model by name, checked against its Config; they point into the mapped files.
#pragma once
#include "base/mapped_file.h"
#include "model/config.h"
#include "model/halves.h"
#include "model/weights/tensor.h"
#include <optional>
#include <span>
#include <vector>

namespace tq {

// Weights of a recurrent layer instead of attn_q, attn_k, attn_v and attn_output. Vectors are in F32, F16 or BF16.
struct RecurrentWeights {
    Tensor attn_qkv;  // [channels][hidden_size]: the queries of all key heads, their keys, the values of all value heads
    Tensor attn_gate; // [value_heads * head_dim][hidden_size]
    Tensor ssm_beta, ssm_alpha; // [value_heads][hidden_size]: how much of a value is written, and how much of the state decays
    Tensor ssm_conv1d;          // a vector of [channels][conv_kernel], the oldest token first
    Tensor ssm_a, ssm_dt;       // vectors of [value_heads]: the rate of decay, which is below 0, and the bias of ssm_alpha
    Tensor ssm_norm;            // a vector of [head_dim], for all value heads
    Tensor ssm_out;             // [hidden_size][value_heads * head_dim]
};

// The expert of a mixture that all tokens have.
struct SharedExpertWeights {
    Tensor gate_inp;       // a vector of [hidden_size], whose product with a token the expert's gate is made of
    Tensor gate, up, down; // as ffn_gate, ffn_up and ffn_down of a dense model
};

struct LayerWeights {
    Tensor attn_norm;
    Tensor attn_q, attn_k, attn_v, attn_output;                  // without rows in a recurrent layer; attn_q has Config::q_rows()
    Tensor ffn_norm, ffn_gate, ffn_up, ffn_down;                 // of a mixture of experts: their matrices, one below the other
    std::optional<Tensor> ffn_gate_inp;                          // the router of experts, in F32: [num_experts][hidden_size]
    std::optional<Tensor> attn_q_norm, attn_k_norm;              // if Architecture::qk_norm
    std::optional<Tensor> attn_q_bias, attn_k_bias, attn_v_bias; // those of the file, if Architecture::qkv_bias
    std::optional<RecurrentWeights> recurrent;                   // of a recurrent layer
    std::optional<SharedExpertWeights> shared_expert;            // if Config::shared_expert_intermediate_size
};

// A head for multi-token prediction (nextn in GGUF files): one more layer with attention, which proposes the token after the next
// (DeepSeek-V3, arXiv:2412.19437, section 2.2). Of the token at a position and the state after the last norm at the one before:
//   x = eh_proj [rms(embedding of the token, enorm); rms(state, hnorm)];  x = layer(x);  logits = output rms(x, norm).
struct MtpWeights {
    Tensor enorm, hnorm; // vectors of [hidden_size]
    Tensor eh_proj;      // [hidden_size][2 hidden_size]
    LayerWeights layer;
    std::optional<Tensor> norm;               // a vector of [hidden_size]; empty: the model's last norm
    std::optional<Tensor> token_embd, output; // [vocab_size][hidden_size]; empty: the model's
};

// Returns the weights of a norm of heads, fp32 [head_dim]; ones if there is none.
std::vector<float> head_norm_weights(const std::optional<Tensor>& norm, uint32_t head_dim);

struct Weights {
    Tensor token_embd;
    std::vector<LayerWeights> layers;
    Tensor output_norm;
    Tensor output; // the file's output.weight, or token_embd when tied
    bool tied;
    // The files of the tensors, which identify their values: empty if there is no file, or one cannot be identified.
    std::vector<FileIdentity> files = {};
    // cls.output.weight [2, hidden_size] of a reranker's file, the rows of yes and no, which are no part of the forward pass.
    std::optional<Tensor> classifier = {};
    std::optional<MtpWeights> mtp = {}; // if Config::mtp

    uint64_t bytes() const;        // of all tensors in the file's formats, a tied head counted once
    uint64_t mapped_bytes() const; // of the weights that lie in files and need not be made
};

// A source of tensors by GGUF's names. Each may be requested once.
class TensorSource {
  public:
    virtual ~TensorSource() = default;
    virtual bool has(const std::string& name) const = 0;
    virtual Tensor matrix(const std::string& name, uint32_t rows, uint32_t cols) = 0;
    virtual Tensor vector(const std::string& name, uint32_t cols) = 0;
    // A short matrix as a vector, row by row.
    virtual Tensor table(const std::string& name, uint32_t rows, uint32_t cols) = 0;
    // A stack of the matrices of all experts, [count * rows][cols]: "blk.3.ffn_up_exps.weight" if `name` is "blk.3.ffn_up".
    virtual Tensor experts(const std::string& name, uint32_t count, uint32_t rows, uint32_t cols) = 0;
};

// Returns all tensors of a model of this architecture and shape; it is tied if `source` has no "output.weight".
Weights collect_weights(TensorSource& source, const Config& config);

// Matrices are in any format of blocks.h, norms and biases in F32, F16 or BF16. Rows of q and k that a file has in pairs
// (RopePairs::neighbours) come in halves, matrices in NVFP4 with their NAME.scale as factors (NAME.input_scale is passed over),
// experts that it has one by one ("blk.3.ffn_up.7.weight") stacked, and rows that it packs by key heads (qwen3next) by kind.
// Other parts of a hybrid's file than the trunk are ignored: the head for multi-token prediction unless Config::mtp, and encoders
// of images ("v.", "mm.", "mtp."). Throws an Error naming the tensor when one is missing, has another shape or a format we cannot
// run, or is unknown to the architecture (a bias would be ignored otherwise).
Weights read_weights(const ModelFile& file, const Config& config);

// Returns the tensors with only the rows that one token reads: of the stacks of experts as many as a token has, one of an
// embedding that is not the head, and none of a head for multi-token prediction.
Weights read_by_token(Weights weights, const Config& config);

// Returns the weights of the halves that a device holds. Matrices of other halves have no rows; norms and biases, which are
// short, stay. The embedding stays if it is the head, too. A head for multi-token prediction is not divided: it goes to the
// device that has all halves.
Weights held_weights(Weights weights, const HeldHalves& held);

// Converts the matrices in F32, F16 or BF16, but for routers and the gates of recurrent layers, to Q8_0 or Q4_0, made from them
// row by row (quantised_rows.h). Returns their number.
uint32_t quantise(Weights& weights, GgmlType type);

template <class R, class F> void for_each_tensor_of_recurrence(R& r, F&& f) {
    for (auto* t :
         {&r.attn_qkv, &r.attn_gate, &r.ssm_beta, &r.ssm_alpha, &r.ssm_conv1d, &r.ssm_a, &r.ssm_dt, &r.ssm_norm, &r.ssm_out})
        f(*t);
}

template <class L, class F> void for_each_tensor_of_layer(L& l, F& f) {
    f(l.attn_norm);
    if (l.recurrent)
        for_each_tensor_of_recurrence(*l.recurrent, f);
    else
        for (auto* t : {&l.attn_q, &l.attn_k, &l.attn_v}) f(*t);
    for (auto* t : {&l.attn_q_norm, &l.attn_k_norm, &l.attn_q_bias, &l.attn_k_bias, &l.attn_v_bias})
        if (*t) f(**t);
    if (!l.recurrent) f(l.attn_output);
    for (auto* t : {&l.ffn_norm, &l.ffn_gate, &l.ffn_up, &l.ffn_down}) f(*t);
    if (l.ffn_gate_inp) f(*l.ffn_gate_inp);
    if (l.shared_expert)
        for (auto* t : {&l.shared_expert->gate_inp, &l.shared_expert->gate, &l.shared_expert->up, &l.shared_expert->down}) f(*t);
}

template <class M, class F> void for_each_tensor_of_mtp(M& m, F& f) {
    for (auto* t : {&m.enorm, &m.hnorm, &m.eh_proj}) f(*t);
    for_each_tensor_of_layer(m.layer, f);
    for (auto* t : {&m.norm, &m.token_embd, &m.output})
        if (*t) f(**t);
}

// Calls f(tensor) for every tensor, a tied head once. `weights`: Weights or const Weights.
template <class W, class F> void for_each_tensor(W& weights, F f) {
    f(weights.token_embd);
    for (auto& l : weights.layers) for_each_tensor_of_layer(l, f);
    f(weights.output_norm);
    if (!weights.tied) f(weights.output);
    if (weights.mtp) for_each_tensor_of_mtp(*weights.mtp, f);
}

} // namespace tq
