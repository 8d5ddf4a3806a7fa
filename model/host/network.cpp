#include "model/host/network.h"
#include "model/rope.h"
#include <cmath>

namespace tq::host {

Network::Network(const Config& c, std::shared_ptr<const LoadedWeights> loaded, const KvOptions& kv, uint32_t context_size,
                 uint32_t capacity, uint32_t block_tokens)
    : config(c), weights(std::move(loaded)), rope_table(tq::rope_table(c, context_size)),
      token_embd{weights->weights.token_embd, "embed"}, output{weights->weights.output, "logits"},
      output_norm{to_floats(weights->weights.output_norm), "output_norm"} {
    const auto side = [&](uint32_t layer, KvSide which) {
        return CacheSide(kv.codec(layer, c.num_hidden_layers, which, c.head_dim), c.num_key_value_heads, capacity);
    };
    for (uint32_t i = 0; i < c.num_hidden_layers; i++) {
        cache.push_back({side(i, KvSide::key), side(i, KvSide::value)});
        cache.back().keep_window(kv.window, block_tokens);
    }
    for (uint32_t i = 0; i < c.num_hidden_layers; i++) {
        const LayerWeights& w = weights->weights.layers[i];
        const KvCodec& keys = cache[i].k.codec;
        const Rotation* rotation = is_rotated(keys.type) ? &keys.rotation : nullptr;
        layers.push_back(
            {i,
             {to_floats(w.attn_norm), "attn_norm"},
             {w.attn_q},
             {w.attn_k, "k"},
             {w.attn_v, "v"},
             {w.attn_output, "attn_output"},
             head_norms(kv.conditioning_of(i, c.num_hidden_layers), i, to_floats(w.attn_q_norm), to_floats(w.attn_k_norm)),
             cache[i],
             rotation,
             1 / std::sqrt(float(c.head_dim)) / (rotation != nullptr ? rotation->gain() : 1),
             {to_floats(w.ffn_norm), "ffn_norm"},
             {{w.ffn_gate}, {w.ffn_up}},
             {w.ffn_down, "h"}});
    }
}

void Activations::resize(const Config& c, size_t tokens) {
    const size_t q_cols = size_t(c.num_attention_heads) * c.head_dim, kv_cols = size_t(c.num_key_value_heads) * c.head_dim;
    for (auto* x : {&h, &a}) x->resize(tokens * c.hidden_size);
    for (auto* x : {&q, &attn}) x->resize(tokens * q_cols);
    for (auto* x : {&k, &v}) x->resize(tokens * kv_cols);
    ffn.resize(tokens * c.intermediate_size);
}

} // namespace tq::host
