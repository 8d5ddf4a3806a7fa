// A model's weights on a device, and how many bytes that takes (device_bytes(), for plans: the same walk without uploading).
// Norms and biases become fp32 vectors. Norms of heads stay on the host, as they are joined with the scales of conditioned keys
// first. Recurrent layers have no matrices of attention.
#include "model/gpu/weights.h"
#include "base/ensure.h"
#include "base/printable.h"
#include "model/gpu/device_layout.h"
#include "model/gpu/recurrent.h"
#include "model/gpu/weight_uploader.h"
#include "shaders.gen.h"
#include <algorithm>

namespace tq::gpu {
namespace {

uint64_t matrix_bytes(const Tensor& t, uint32_t interleave) { return device_matrix_bytes(t.type, t.rows, t.cols, interleave); }

// Gate and up become one matrix with their rows in turn if they have one format (are_pairs), so that one kernel has both values
// of a SwiGLU. That matrix is then padded once, not twice, and it has a format's grid once.
uint64_t gate_up_bytes(const Tensor& gate, const Tensor& up, uint32_t interleave) {
    return are_pairs(gate, up) ? device_matrix_bytes(gate.type, 2 * gate.rows, gate.cols, interleave)
                               : matrix_bytes(gate, interleave) + matrix_bytes(up, interleave);
}

uint64_t recurrent_bytes(const RecurrentWeights& w, uint32_t interleave) {
    uint64_t bytes = 4 * (uint64_t(w.ssm_conv1d.cols) + 4 * w.ssm_a.cols + w.ssm_norm.cols);
    for (const Tensor* t : {&w.attn_qkv, &w.attn_gate, &w.ssm_beta, &w.ssm_alpha, &w.ssm_out})
        bytes += matrix_bytes(*t, interleave);
    return bytes;
}

RecurrentMatrices upload_recurrent(WeightUploader& up, const RecurrentWeights& w) {
    const std::vector<float> taps = up.floats(w.ssm_conv1d), a = up.floats(w.ssm_a), dt = up.floats(w.ssm_dt);
    return {.attn_qkv = up.matrix(w.attn_qkv),
            .attn_gate = up.matrix(w.attn_gate),
            .ssm_beta = up.matrix(w.ssm_beta),
            .ssm_alpha = up.matrix(w.ssm_alpha),
            .ssm_out = up.matrix(w.ssm_out),
            .inputs = up.vector(w.ssm_conv1d.name, delta_input_floats(taps, a, dt)),
            .norm = up.vector(w.ssm_norm)};
}

SharedExpertMatrices upload_shared_expert(WeightUploader& up, const SharedExpertWeights& w) {
    return {up.vector(w.gate_inp), up.gate_up(w.gate, w.up), up.matrix(w.down)};
}

LayerMatrices upload_layer(WeightUploader& up, ThreadPool& pool, const LayerWeights& w) {
    const auto matrix = [&](const Tensor& t) { return w.recurrent ? Matrix{} : up.matrix(t); };
    return {.attn_q = matrix(w.attn_q),
            .attn_k = matrix(w.attn_k),
            .attn_v = matrix(w.attn_v),
            .attn_output = matrix(w.attn_output),
            .ffn_gate_up = up.gate_up(w.ffn_gate, w.ffn_up),
            .ffn_down = up.matrix(w.ffn_down),
            .attn_norm = up.vector(w.attn_norm),
            .ffn_norm = up.vector(w.ffn_norm),
            .attn_q_norm = up.floats(w.attn_q_norm),
            .attn_k_norm = up.floats(w.attn_k_norm),
            .k_bias = w.attn_k_bias ? to_floats(*w.attn_k_bias) : std::vector<float>(),
            .attn_q_bias = up.vector(w.attn_q_bias),
            .attn_k_bias = up.vector(w.attn_k_bias),
            .attn_v_bias = up.vector(w.attn_v_bias),
            .ffn_gate_inp = w.ffn_gate_inp ? std::optional(up.matrix(*w.ffn_gate_inp)) : std::nullopt,
            .attention_squares = attention_squares(pool, w),
            .recurrent = w.recurrent ? std::optional(upload_recurrent(up, *w.recurrent)) : std::nullopt,
            .shared = w.shared_expert ? std::optional(upload_shared_expert(up, *w.shared_expert)) : std::nullopt};
}

} // namespace

// The shaders' variants are named after the formats in lower case (shaders.cmake).
size_t family_member(GgmlType type) {
    const std::string name = lowercase(block_format(type)->name);
    const auto found = std::ranges::find(shader::weight_formats, name);
    ENSURE(found != std::end(shader::weight_formats), "shaders/shaders.cmake has no {}", name);
    return size_t(found - std::begin(shader::weight_formats));
}

// Counts what upload_layer() uploads. A weight that is added to one must be added to the other, or the plan of memory is wrong.
static uint64_t layer_bytes(const LayerWeights& w, uint32_t interleave) {
    uint64_t bytes = 0;
    if (w.recurrent)
        bytes += recurrent_bytes(*w.recurrent, interleave);
    else
        for (const Tensor* t : {&w.attn_q, &w.attn_k, &w.attn_v, &w.attn_output}) bytes += matrix_bytes(*t, interleave);
    bytes += gate_up_bytes(w.ffn_gate, w.ffn_up, interleave) + matrix_bytes(w.ffn_down, interleave);
    if (const auto& s = w.shared_expert)
        bytes += gate_up_bytes(s->gate, s->up, interleave) + matrix_bytes(s->down, interleave) + s->gate_inp.cols * 4ull;
    if (w.ffn_gate_inp) bytes += matrix_bytes(*w.ffn_gate_inp, interleave);
    for (const Tensor* t : {&w.attn_norm, &w.ffn_norm}) bytes += uint64_t(t->cols) * 4;
    for (const std::optional<Tensor>* t : {&w.attn_q_bias, &w.attn_k_bias, &w.attn_v_bias})
        if (*t) bytes += uint64_t((*t)->cols) * 4;
    return bytes;
}

uint64_t device_bytes(const Weights& weights, uint32_t interleave) {
    uint64_t bytes = matrix_bytes(weights.token_embd, interleave) + weights.output_norm.cols * 4 +
                     (weights.tied ? 0 : matrix_bytes(weights.output, interleave));
    for (const LayerWeights& w : weights.layers) bytes += layer_bytes(w, interleave);
    if (!weights.mtp) return bytes;
    const MtpWeights& m = *weights.mtp;
    bytes += layer_bytes(m.layer, interleave) + matrix_bytes(m.eh_proj, interleave) + 3 * 4ull * m.enorm.cols;
    for (const std::optional<Tensor>* t : {&m.token_embd, &m.output})
        if (*t) bytes += matrix_bytes(**t, interleave);
    return bytes;
}

static std::optional<MtpMatrices> upload_mtp(WeightUploader& up, ThreadPool& pool, const std::optional<MtpWeights>& w) {
    if (!w) return std::nullopt;
    const auto matrix = [&](const std::optional<Tensor>& t) { return t ? std::optional(up.matrix(*t)) : std::nullopt; };
    return MtpMatrices{.enorm = up.vector(w->enorm),
                       .hnorm = up.vector(w->hnorm),
                       .eh_proj = up.matrix(w->eh_proj),
                       .layer = upload_layer(up, pool, w->layer),
                       .norm = up.vector(w->norm),
                       .token_embd = matrix(w->token_embd),
                       .output = matrix(w->output)};
}

DeviceWeights upload_weights(Device& device, ThreadPool& pool, const Weights& weights, uint32_t interleave,
                             const LoadProgress& on_progress) {
    WeightUploader up(device, pool, interleave, weights.bytes(), on_progress);
    DeviceWeights result{up.matrix(weights.token_embd), {}, up.vector(weights.output_norm), {}};
    for (const LayerWeights& w : weights.layers) result.layers.push_back(upload_layer(up, pool, w));
    if (!weights.tied) result.own_output.push_back(up.matrix(weights.output));
    result.mtp = upload_mtp(up, pool, weights.mtp);
    up.finish();
    return result;
}

} // namespace tq::gpu
