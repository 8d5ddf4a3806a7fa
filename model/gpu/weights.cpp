#include "model/gpu/weights.h"
#include "base/ensure.h"
#include "model/gpu/device_layout.h"
#include "model/gpu/weight_uploader.h"
#include "shaders.gen.h"
#include <algorithm>

namespace tq::gpu {
namespace {

uint64_t matrix_bytes(const Tensor& t, uint32_t interleave) { return device_matrix_bytes(t.type, t.rows, t.cols, interleave); }

} // namespace

size_t family_member(GgmlType type) {
    std::string name = block_format(type)->name;
    std::ranges::transform(name, name.begin(), [](char c) { return c >= 'A' && c <= 'Z' ? char(c - 'A' + 'a') : c; });
    const auto found = std::ranges::find(shader::weight_formats, name);
    ENSURE(found != std::end(shader::weight_formats), "shaders/shaders.cmake has no {}", name);
    return size_t(found - std::begin(shader::weight_formats));
}

uint64_t device_bytes(const Weights& weights, uint32_t interleave) {
    uint64_t bytes = matrix_bytes(weights.token_embd, interleave) + weights.output_norm.cols * 4 +
                     (weights.tied ? 0 : matrix_bytes(weights.output, interleave));
    for (const LayerWeights& w : weights.layers) {
        for (const Tensor* t : {&w.attn_q, &w.attn_k, &w.attn_v, &w.attn_output, &w.ffn_down})
            bytes += matrix_bytes(*t, interleave);
        bytes += pairs(w) ? device_matrix_bytes(w.ffn_gate.type, 2 * w.ffn_gate.rows, w.ffn_gate.cols, interleave)
                          : matrix_bytes(w.ffn_gate, interleave) + matrix_bytes(w.ffn_up, interleave);
        if (w.ffn_gate_inp) bytes += matrix_bytes(*w.ffn_gate_inp, interleave);
        for (const Tensor* t : {&w.attn_norm, &w.ffn_norm}) bytes += uint64_t(t->cols) * 4;
        for (const std::optional<Tensor>* t : {&w.attn_q_bias, &w.attn_k_bias, &w.attn_v_bias})
            if (*t) bytes += uint64_t((*t)->cols) * 4;
    }
    return bytes;
}

DeviceWeights upload_weights(Device& device, ThreadPool& pool, const Weights& weights, uint32_t interleave,
                             const LoadProgress& on_progress) {
    WeightUploader up(device, pool, interleave, weights.bytes(), on_progress);
    DeviceWeights result{up.matrix(weights.token_embd), {}, up.vector(weights.output_norm), {}};
    for (const LayerWeights& w : weights.layers)
        result.layers.push_back(
            {up.matrix(w.attn_q), up.matrix(w.attn_k), up.matrix(w.attn_v), up.matrix(w.attn_output), up.gate_up(w),
             up.matrix(w.ffn_down), up.vector(w.attn_norm), up.vector(w.ffn_norm), up.floats(w.attn_q_norm),
             up.floats(w.attn_k_norm), w.attn_k_bias ? to_floats(*w.attn_k_bias) : std::vector<float>(), up.vector(w.attn_q_bias),
             up.vector(w.attn_k_bias), up.vector(w.attn_v_bias),
             w.ffn_gate_inp ? std::optional(up.matrix(*w.ffn_gate_inp)) : std::nullopt, attention_squares(pool, w)});
    if (!weights.tied) result.own_output.push_back(up.matrix(weights.output));
    up.finish();
    return result;
}

} // namespace tq::gpu
