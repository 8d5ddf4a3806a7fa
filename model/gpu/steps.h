// The steps of model/host/step_list-inl.h, recorded: the kernels of kernels.h with arguments of a pass, a layer and its weights.
#pragma once
#include "model/gpu/experts.h"
#include "model/gpu/plan.h"
#include "model/gpu/taps.h"
#include <functional>
#include <initializer_list>

namespace tq::gpu {

// `result`: the name of the output of a matrix or norm for taps; empty if it has none.
struct Linear {
    const Matrix& matrix;
    std::string_view result = {};
    const Buffer* next_norm = nullptr; // for products that add to h: the weights of the norm that h goes through next
    const Buffer* bias = nullptr;      // fp32 [rows]; null if there is none
};
struct GatedLinear {
    const std::vector<Matrix>& matrices; // LayerMatrices::ffn_gate_up
};
struct Norm {
    const Buffer& weights;
    std::string_view result;
};

// Each layer's norms of queries and keys, in the form of HeadNorm: their weights (ones if there is no norm) and channel scaling;
// and the scales of values. They belong to a cache, not to the weights, so that caches with other conditioning can share the
// weights.
struct HeadNormBuffers {
    Buffer q, k;
    uint32_t kv_heads;                  // 0: without channel scaling of keys
    bool has_means;                     // keys lack the mean of their page
    std::optional<Buffer> value_scales; // of v_append(); nullopt if values are stored as they are
};
std::vector<HeadNormBuffers> upload_head_norms(Device& device, const Config& config, const DeviceWeights& weights,
                                               const KvOptions& kv);

// The attention of a recurrent layer: matrices as in RecurrentMatrices; states: of its slots.
struct Recurrence {
    Linear attn_qkv, attn_gate, ssm_beta, ssm_alpha;
    const Buffer &inputs, &norm;
    const Buffer* states; // null: not held
    Linear ssm_out;
};
// The expert of a mixture that all tokens have.
struct SharedExpert {
    const Buffer& gate;
    GatedLinear gate_up;
    Linear down;
};

struct Layer {
    uint32_t number;
    Norm attn_norm;
    Linear attn_q, attn_k, attn_v, attn_output; // without rows in a recurrent layer
    HeadNorm q_norm, k_norm;
    const Buffer* value_scales; // null: none
    const DeviceStorage& cache;
    Norm ffn_norm;
    std::optional<Linear> router; // of a mixture of experts: the matrices that follow are stacks of theirs
    GatedLinear ffn_gate_up;
    Linear ffn_down;
    std::optional<Recurrence> recurrence; // of a recurrent layer
    std::optional<SharedExpert> shared;   // of a mixture that has an expert for all tokens
};

// The head for multi-token prediction, as MtpMatrices; states: [slots][ring][hidden_size], those that are kept.
struct Mtp {
    Linear token_embd, output, eh_proj;
    Norm enorm, hnorm, norm;
    Layer layer;
    const Buffer& states;
    uint32_t ring;
};

// The inputs of a pass. All must outlive it.
struct Network {
    Linear token_embd, output;
    Norm output_norm;
    std::vector<Layer> layers;
    std::optional<Mtp> mtp;

    Network(const Config& config, const DeviceWeights& weights, const std::vector<HeadNormBuffers>& head_norms,
            const DeviceStorage& cache);
};

// Activations of a block of `tokens` tokens, fp32; `rounded` as in Inputs.
struct Scratch {
    Buffer h, a, q, k, v, attn, partials, gate_up, ffn, rounded, logits, candidates, sampling;
    Buffer router, routes, down;     // of experts: the router's products, their Routes, and what each of them adds to h
    Buffer shared;                   // of the expert that all tokens have
    Buffer q_gate, gate;             // of gated attention
    Buffer recurrent_rows, z, delta; // of recurrent layers
    Buffer e, eh, before;            // of the head for multi-token prediction
    std::optional<RecurrentRows> rows_at;
    uint32_t h_floats;      // floats of h; normed_floats() follow them if norms are folded
    PageScores page_scores; // in q
};
inline Experts experts_of(const Config& c) { return {c.num_experts, c.num_experts_per_tok, c.norm_topk_prob}; }
using Allocate = std::function<Buffer(const char* label, uint64_t bytes)>;
Scratch make_scratch(const Allocate& allocate, const ScratchBytes& bytes);
inline Scratch make_scratch(Device& device, const ScratchBytes& bytes) {
    return make_scratch([&](const char* label, uint64_t size) { return device.allocate(label, size); }, bytes);
}

// The buffers that one recording reads and writes. ids: uint32 [tokens]
struct Activations {
    const Buffer &ids, &h, &a, &q, &k, &v, &attn, &ffn, &logits;
    const Buffer &q_gate, &gate, &shared;
    const View qkv, beta, alpha; // parts of Scratch::recurrent_rows
    const Buffer &z, &delta, &e, &eh;
    const PageScores page_scores; // in q
    const Routes routes;

    Activations(const Config& config, const Scratch& scratch, const Buffer& ids, const Buffer& logits);
};

// A pass that is being recorded, and the state that its steps pass on.
struct ForwardPass : Pass {
    const Config& config;
    const Scratch& scratch;
    Taps& taps;
    bool in_head = false; // its rows are those whose logits are wanted, and the context names them
    // h, normed with these weights by the product that computed it (tuning.fold_norms): rms_norm then has nothing to do.
    std::optional<Normed> normed;
    const Buffer* normed_by = nullptr;
    const Layer* layer = nullptr;

    void begin(const Layer& layer);
    void end_layers(); // closes the label of the last layer
    void result(std::string_view name, const View& x, uint32_t cols);
};

void embed(ForwardPass&, const Buffer& h, const Linear& embedding, const Buffer& ids);
void rms_norm(ForwardPass&, const Buffer& y, const Buffer& x, const Norm& w);

struct Product {
    View y;
    const Linear& w;
};
// x: the normed h, [tokens][hidden_size]
void matmul(ForwardPass&, std::initializer_list<Product> products, const Buffer& x);
void matmul_add(ForwardPass&, const Buffer& h, const Linear& w, const Buffer& x);
void gated_matmul(ForwardPass&, const Buffer& y, const GatedLinear& w, const Buffer& x);
void route(ForwardPass&, const Routes& routes, const Linear& router, const Buffer& x);
void gated_matmul(ForwardPass&, const Buffer& y, const GatedLinear& w, const Buffer& x, const Routes& routes);
void matmul_add(ForwardPass&, const Buffer& h, const Linear& w, const Buffer& x, const Routes& routes);

void kv_append(ForwardPass&, const Layer& layer, const Buffer& k, const Buffer& v);
void q_norm_rope(ForwardPass&, const Layer& layer, const Buffer& q, const PageScores& page_scores);
void attention(ForwardPass&, const Layer& layer, const Buffer& y, const Buffer& q, const PageScores& page_scores);
void mtp_inputs(ForwardPass&, const Mtp& mtp, const Buffer& y, const Buffer& e, const Buffer& states);
void keep_states(ForwardPass&, const Mtp& mtp, const Buffer& states);
void split_gates(ForwardPass&, const Buffer& q, const Buffer& gate, const Buffer& q_gate);
void apply_gates(ForwardPass&, const Buffer& y, const Buffer& gate);

void delta_inputs(ForwardPass&, const Layer& layer, const View& qkv, const View& beta, const View& alpha);
void delta_rule(ForwardPass&, const Layer& layer, const Buffer& y, const View& qkv, const View& beta, const View& alpha);
void settle(ForwardPass&, const Layer& layer,
            const Activations& x); // without rows
void gated_norm(ForwardPass&, const Layer& layer, const Buffer& y, const Buffer& z);
void share_gate(ForwardPass&, const Layer& layer, const Buffer& y, const Buffer& x);

// In model/gpu/forward.cpp: the halves of a layer (model/halves.h), which add to the hidden state h of every token.
void first_half(ForwardPass&, const Layer& layer, const Activations& x);
void feed_forward_half(ForwardPass&, const Layer& layer, const Activations& x);
// From token ids to h, and from there to logits, or only to a; and from the ids that follow tokens of slots to the logits after
// them, by the head for multi-token prediction.
void layers(ForwardPass&, const Network& net, const Activations& x);
void head(ForwardPass&, const Network& net, const Activations& x);
void last_norm(ForwardPass&, const Network& net, const Activations& x);
void draft(ForwardPass&, const Network& net, const Activations& x);

} // namespace tq::gpu
