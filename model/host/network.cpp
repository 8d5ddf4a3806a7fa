// A model as the steps of a host engine want it: references to the matrices, and copies of the vectors (norms, biases) in fp32.
// Everything that depends on the cache's types is decided here once for each layer: the rotation of queries, which must be that
// of the stored keys; the gain of the rotation, which goes into the scale of the scores; the scales of conditioned keys, which go
// into the heads' norms; those of values.
#include "model/host/network.h"
#include "model/rope.h"
#include <algorithm>
#include <cmath>
#include <fmt/format.h>

namespace tq::host {

std::vector<LayerCodecs> layer_codecs(const Config& c, const KvOptions& kv) {
    std::vector<LayerCodecs> all;
    for (uint32_t i = 0; i < c.cache_layers(); i++)
        all.push_back({kv.codec(i, c.num_hidden_layers, KvSide::key, c.head_dim),
                       kv.codec(i, c.num_hidden_layers, KvSide::value, c.head_dim),
                       c.is_recurrent(i) ? c.recurrent : std::nullopt, i == c.num_hidden_layers});
    return all;
}

HostCache make_cache(const Config& c, const ForwardOptions& options, uint32_t pass_tokens, SettleStates settle) {
    return {cache_shape(options, c),  c.num_key_value_heads, layer_codecs(c, options.kv), pass_tokens, settle,
            c.mtp ? c.hidden_size : 0};
}

static std::optional<Recurrence> recurrence_of(const std::optional<RecurrentWeights>& w) {
    if (!w) return std::nullopt;
    return Recurrence{.attn_qkv = {w->attn_qkv},
                      .attn_gate = {w->attn_gate, "z"},
                      .ssm_beta = {w->ssm_beta},
                      .ssm_alpha = {w->ssm_alpha},
                      .conv = to_floats(w->ssm_conv1d),
                      .a = to_floats(w->ssm_a),
                      .dt = to_floats(w->ssm_dt),
                      .norm = to_floats(w->ssm_norm),
                      .ssm_out = {w->ssm_out, "attn_output"}};
}

static std::optional<SharedExpert> shared_expert_of(const std::optional<SharedExpertWeights>& w) {
    if (!w) return std::nullopt;
    return SharedExpert{to_floats(w->gate_inp), {{w->gate}, {w->up}}, {w->down, "shared"}};
}

static std::vector<float> bias(const std::optional<Tensor>& tensor) { return tensor ? to_floats(*tensor) : std::vector<float>(); }

// Returns layer i, or that of the head for multi-token prediction. w: a layer of `loaded`
static Layer make_layer(const Config& c, uint32_t i, const LayerWeights& w, const LoadedWeights& loaded, const KvOptions& kv,
                        const HostVectors& vectors) {
    const AttentionSquares& squares = loaded.attention_squares[i];
    const KvCodec& keys = vectors.layers()[i].k.codec;
    const Rotation* rotation = is_turboquant(keys.type) ? &keys.rotation : nullptr;
    return {.number = i,
            .attn_norm = {to_floats(w.attn_norm), "attn_norm"},
            .attn_q = {w.attn_q, {}, bias(w.attn_q_bias)},
            .attn_k = {w.attn_k, "k", bias(w.attn_k_bias)},
            .attn_v = {w.attn_v, "v", bias(w.attn_v_bias)},
            .attn_output = {w.attn_output, "attn_output"},
            .head_norms = head_norms(kv.conditioning_of(i, c.num_hidden_layers), i, head_norm_weights(w.attn_q_norm, c.head_dim),
                                     head_norm_weights(w.attn_k_norm, c.head_dim), key_scaling(c, squares, bias(w.attn_k_bias)),
                                     c.rotary_dim),
            .value_scales = kv.scales_values(i, c.num_hidden_layers) ? value_scales(c, squares) : std::vector<float>(),
            .cache = vectors.layers()[i],
            .q_rotation = rotation,
            .q_scale = 1 / std::sqrt(float(c.head_dim)) / (rotation != nullptr ? rotation->gain() : 1),
            .ffn_norm = {to_floats(w.ffn_norm), "ffn_norm"},
            .router = w.ffn_gate_inp ? std::optional(Linear{*w.ffn_gate_inp, "router"}) : std::nullopt,
            .ffn_gate_up = {{w.ffn_gate}, {w.ffn_up}},
            .ffn_down = {w.ffn_down, "h"},
            .recurrence = recurrence_of(w.recurrent),
            .shared = shared_expert_of(w.shared_expert)};
}

Network::Network(const Config& c, std::shared_ptr<const LoadedWeights> loaded, const KvOptions& kv, const HostVectors& vectors,
                 uint32_t context_size)
    : config(c), weights(std::move(loaded)), rope_table(tq::rope_table(c, context_size)),
      token_embd{weights->weights.token_embd, "embed"}, output{weights->weights.output, "logits"},
      output_norm{to_floats(weights->weights.output_norm), "output_norm"} {
    const Weights& w = weights->weights;
    for (uint32_t i = 0; i < c.num_hidden_layers; i++) layers.push_back(make_layer(c, i, w.layers[i], *weights, kv, vectors));
    if (!c.mtp) return;
    mtp.emplace(Mtp{.token_embd = {w.mtp->token_embd ? *w.mtp->token_embd : w.token_embd, "embed"},
                    .output = {w.mtp->output ? *w.mtp->output : w.output, "logits"},
                    .eh_proj = {w.mtp->eh_proj, "eh_proj"},
                    .enorm = {to_floats(w.mtp->enorm), "enorm"},
                    .hnorm = {to_floats(w.mtp->hnorm), "hnorm"},
                    .norm = {to_floats(w.mtp->norm ? *w.mtp->norm : w.output_norm), "output_norm"},
                    .layer = make_layer(c, c.num_hidden_layers, w.mtp->layer, *weights, kv, vectors),
                    .states = *vectors.last_states()});
}

OnResult named(Tap tap) {
    if (!tap) return {};
    return [tap = std::move(tap)](const Pass& pass, std::string_view name, std::span<const float> values) {
        if (values.empty()) return;
        if (pass.layer() == nullptr) return tap(name, values);
        tap(fmt::format("layer {} {}", pass.layer()->number, name), values);
    };
}

void PageScores::resize(std::span<const Row> rows, uint32_t heads, bool any) {
    pages = 0;
    for (const Row& row : rows) pages = any ? std::max(pages, pages_of(row.position + 1)) : 0;
    values.resize(rows.size() * heads * pages);
}

void Activations::resize(const Config& c, size_t rows) {
    const size_t q_cols = size_t(c.num_attention_heads) * c.head_dim, kv_cols = size_t(c.num_key_value_heads) * c.head_dim;
    for (auto* x : {&h, &a}) x->resize(rows * c.hidden_size);
    for (auto* x : {&q, &attn}) x->resize(rows * q_cols);
    for (auto* x : {&k, &v}) x->resize(rows * kv_cols);
    ffn.resize(rows * c.intermediate_size);
    gate.resize(c.gated_attention ? rows * q_cols : 0);
    q_gate.resize(2 * gate.size());
    shared.resize(rows * c.shared_expert_intermediate_size);
    e.resize(c.mtp ? rows * c.hidden_size : 0);
    eh.resize(2 * e.size());
    if (!c.recurrent) return;
    qkv.resize(rows * c.recurrent->channels());
    for (auto* x : {&z, &delta}) x->resize(rows * c.recurrent->value_size());
    for (auto* x : {&beta, &alpha}) x->resize(rows * c.recurrent->value_heads);
}

void Activations::resize_head(const Config& c, size_t rows) {
    for (auto* x : {&h, &a}) x->resize(rows * c.hidden_size);
    logits.resize(rows * c.vocab_size);
}

} // namespace tq::host
