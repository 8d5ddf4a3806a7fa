#include "model/gpu/layers.h"
#include "runtime/uploader.h"
#include <cstring>
#include <fmt/format.h>

namespace tq::gpu {
namespace {

// y = w x, x the normed hidden state.
void project(Pass& pass, const Network& net, View y, const Matrix& w, const std::optional<Normed>& normed) {
    if (normed)
        matvec_normed(pass, y, w, *normed, net.config.rms_norm_eps);
    else
        matmul(pass, y, w, net.scratch.a);
}

// ffn = silu(gate x) * (up x), x the normed hidden state.
void gate_up(Pass& pass, const Network& net, const LayerMatrices& w, const std::optional<Normed>& normed) {
    const Scratch& s = net.scratch;
    const uint32_t cols = net.config.intermediate_size;
    const Matrix& first = w.ffn_gate_up[0];
    if (w.ffn_gate_up.size() == 2) {
        const uint64_t half = s.gate_up.bytes() / 2;
        const View gate(s.gate_up, 0, half), up(s.gate_up, half, half);
        project(pass, net, gate, first, normed);
        project(pass, net, up, w.ffn_gate_up[1], normed);
        swiglu(pass, s.ffn, gate, up, cols);
    } else if (normed) {
        matvec_normed(pass, s.ffn, first, *normed, net.config.rms_norm_eps, true);
    } else if (pass.tokens == 1) {
        matvec_gated(pass, s.ffn, first, s.a);
    } else {
        matmul(pass, s.gate_up, first, s.a);
        swiglu_pairs(pass, s.ffn, s.gate_up, cols);
    }
}

Buffer upload(Uploader& uploader, Device& device, std::span<const float> values) {
    Buffer buffer = device.allocate("head norm", values.size_bytes());
    std::memcpy(uploader.begin(buffer).data(), values.data(), values.size_bytes());
    uploader.end();
    return buffer;
}

} // namespace

std::vector<HeadNormBuffers> upload_head_norms(Device& device, const DeviceWeights& weights, const KvOptions& kv,
                                               uint32_t kv_heads) {
    std::vector<HeadNormBuffers> out;
    Uploader uploader(device);
    const uint32_t layers = uint32_t(weights.layers.size());
    for (uint32_t i = 0; i < layers; i++) {
        const HeadNorms norms =
            head_norms(kv.conditioning_of(i, layers), i, weights.layers[i].attn_q_norm, weights.layers[i].attn_k_norm);
        out.push_back({upload(uploader, device, head_norm_floats(norms.q, norms.q_conditions)),
                       upload(uploader, device, head_norm_floats(norms.k, norms.k_conditions)),
                       norms.k_conditions.empty() ? 0 : kv_heads});
    }
    uploader.finish();
    return out;
}

Scratch make_scratch(Device& device, const ScratchBytes& bytes) {
    return {device.allocate("h", bytes.hidden + bytes.normed),
            device.allocate("a", bytes.hidden),
            device.allocate("q", bytes.q),
            device.allocate("k", bytes.kv),
            device.allocate("v", bytes.kv),
            device.allocate("attention", bytes.attn),
            device.allocate("partials", bytes.partials),
            device.allocate("gate and up", 2 * bytes.ffn),
            device.allocate("swiglu", bytes.ffn),
            device.allocate("logits", bytes.logits),
            device.allocate("candidates", bytes.candidates),
            device.allocate("draw", bytes.draw),
            uint32_t(bytes.hidden / 4)};
}

// The same steps in the same order as model/cpu/forward.cpp. Where norms are folded, the normed vector exists for taps alone.
std::optional<Normed> layers(Pass& pass, Taps& taps, const Network& net) {
    const Config& c = net.config;
    const Scratch& s = net.scratch;
    const uint32_t heads = c.num_attention_heads, kv_heads = c.num_key_value_heads;
    const auto tap = [&](uint32_t layer, const char* name, const Buffer& x, uint32_t cols) {
        taps.add(pass, fmt::format("layer {} {}", layer, name), x, cols);
    };
    std::optional<Normed> normed;
    const auto norm = [&](uint32_t layer, const char* name, const Buffer& w) {
        if (!normed || taps.on()) rms_norm(pass, s.a, s.h, w, c.hidden_size, c.rms_norm_eps);
        tap(layer, name, s.a, c.hidden_size);
    };
    const auto residual = [&](const Matrix& w, const Buffer& x, const Buffer& next_norm) {
        if (pass.tokens == 1 && pass.tuning.fold_norms)
            normed = matvec_residual(pass, s.h, s.h_floats, w, x, next_norm);
        else
            matmul(pass, s.h, w, x, true);
    };

    embed(pass, s.h, net.weights.token_embd, net.ids);
    taps.add(pass, "embed", s.h, c.hidden_size);
    for (uint32_t i = 0; i < c.num_hidden_layers; i++) {
        const LayerMatrices& w = net.weights.layers[i];
        const HeadNormBuffers& head = net.head_norms[i];
        pass.recorder.begin_label(fmt::format("layer {}", i));
        norm(i, "attn_norm", w.attn_norm);
        project(pass, net, s.q, w.attn_q, normed);
        project(pass, net, s.k, w.attn_k, normed);
        project(pass, net, s.v, w.attn_v, normed);
        tap(i, "k", s.k, kv_heads * c.head_dim);
        tap(i, "v", s.v, kv_heads * c.head_dim);
        q_norm_rope(pass, s.q, {head.q, head.kv_heads}, heads, c.rms_norm_eps, net.cache.layers[i].k);
        tap(i, "q", s.q, heads * c.head_dim);
        k_append(pass, net.cache, i, s.k, {head.k, head.kv_heads}, kv_heads, c.rms_norm_eps);
        v_append(pass, net.cache, i, s.v, kv_heads);
        attention(pass, s.attn, s.partials, s.q, net.cache, i, heads, kv_heads);
        keep_recent(pass, net.cache, i, s.k, {head.k, head.kv_heads}, s.v, kv_heads, c.rms_norm_eps);
        tap(i, "attention", s.attn, heads * c.head_dim);
        residual(w.attn_output, s.attn, w.ffn_norm);
        tap(i, "attn_output", s.h, c.hidden_size);

        norm(i, "ffn_norm", w.ffn_norm);
        gate_up(pass, net, w, normed);
        tap(i, "swiglu", s.ffn, c.intermediate_size);
        residual(w.ffn_down, s.ffn, i + 1 < c.num_hidden_layers ? net.weights.layers[i + 1].attn_norm : net.weights.output_norm);
        tap(i, "h", s.h, c.hidden_size);
        pass.recorder.end_label();
    }
    return normed;
}

// Logits of the block's last token.
void head(Pass& pass, Taps& taps, const Network& net, const std::optional<Normed>& normed) {
    if (!normed || taps.on())
        rms_norm(pass, net.scratch.a, net.scratch.h, net.weights.output_norm, net.config.hidden_size, net.config.rms_norm_eps,
                 true);
    taps.add(pass, "output_norm", net.scratch.a, net.config.hidden_size, true);
    if (normed)
        matvec_normed(pass, net.scratch.logits, net.weights.output(), *normed, net.config.rms_norm_eps);
    else
        matvec(pass, net.scratch.logits, net.weights.output(), net.scratch.a);
    taps.add(pass, "logits", net.scratch.logits, net.config.vocab_size, true);
}

} // namespace tq::gpu
