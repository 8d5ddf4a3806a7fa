// The tensors of hybrids' recurrent layers and mixtures, which files have in three forms: each matrix by itself; projections and
// gates packed by key heads (qwen3next); gates and ups of all experts in one. All become the first form. Nothing is copied: a
// part is a view that picks rows when they are read (picked(), stacked()).
// PyTorch's vectors differ, too. Norms, but for that of the recurrence, are stored as the weight minus 1, and the rate of decay
// as the logarithm of its negative; from_pytorch() converts them to GGUF's.
#include "model/weights/hybrid_weights.h"
#include "model/weights/stacked_rows.h"
#include <algorithm>
#include <cmath>

namespace tq {
namespace {

// The rows of a matrix that are packed by key heads: for each of them a run of each part.
class PackedRows {
  public:
    // `sizes`: rows of each part for a key head.
    PackedRows(Tensor all, uint32_t key_heads, std::vector<uint32_t> sizes)
        : all_(std::move(all)), key_heads_(key_heads), sizes_(std::move(sizes)) {}

    // Appends the rows of a part, key head by key head.
    void append(std::vector<uint32_t>& rows, size_t part) const {
        uint32_t before = 0, of_head = 0;
        for (size_t i = 0; i < sizes_.size(); i++) {
            before += i < part ? sizes_[i] : 0;
            of_head += sizes_[i];
        }
        for (uint32_t head = 0; head < key_heads_; head++)
            for (uint32_t i = 0; i < sizes_[part]; i++) rows.push_back(head * of_head + before + i);
    }
    Tensor parts(std::string name, std::initializer_list<size_t> which) const {
        std::vector<uint32_t> rows;
        for (const size_t part : which) append(rows, part);
        return picked(std::move(name), all_, std::move(rows));
    }

  private:
    const Tensor all_;
    const uint32_t key_heads_;
    const std::vector<uint32_t> sizes_;
};

// attn_qkv and attn_gate, or older files' ssm_in: for each key head its query, its key, its value heads' values and their gates.
void collect_projections(RecurrentWeights& w, TensorSource& in, const Config& c, const std::string& blk) {
    const Recurrent& r = *c.recurrent;
    const std::string qkv = blk + "attn_qkv.weight", gate = blk + "attn_gate.weight", both = blk + "ssm_in.weight";
    if (!in.has(both)) {
        w.attn_qkv = in.matrix(qkv, r.channels(), c.hidden_size);
        w.attn_gate = in.matrix(gate, r.value_size(), c.hidden_size);
        return;
    }
    const uint32_t values = r.value_size() / r.key_heads;
    const PackedRows packed(in.matrix(both, r.channels() + r.value_size(), c.hidden_size), r.key_heads,
                            {r.head_dim, r.head_dim, values, values});
    w.attn_qkv = packed.parts(qkv, {0, 1, 2});
    w.attn_gate = packed.parts(gate, {3});
}

// ssm_beta and ssm_alpha, or qwen3next's ssm_ba: for each key head the rows of its value heads, first those of ssm_beta.
void collect_gates(RecurrentWeights& w, TensorSource& in, const Config& c, const std::string& blk) {
    const Recurrent& r = *c.recurrent;
    const std::string beta = blk + "ssm_beta.weight", alpha = blk + "ssm_alpha.weight", both = blk + "ssm_ba.weight";
    if (!in.has(both)) {
        w.ssm_beta = in.matrix(beta, r.value_heads, c.hidden_size);
        w.ssm_alpha = in.matrix(alpha, r.value_heads, c.hidden_size);
        return;
    }
    const uint32_t heads = r.value_heads / r.key_heads;
    const PackedRows packed(in.matrix(both, 2 * r.value_heads, c.hidden_size), r.key_heads, {heads, heads});
    w.ssm_beta = packed.parts(beta, {0});
    w.ssm_alpha = packed.parts(alpha, {1});
}

} // namespace

Tensor packed_gates(const Tensor& beta, const Tensor& alpha, const Recurrent& r) {
    const uint32_t heads = r.value_heads / r.key_heads;
    std::vector<uint32_t> rows;
    for (uint32_t key = 0; key < r.key_heads; key++)
        for (const uint32_t first : {key * heads, r.value_heads + key * heads})
            for (uint32_t i = 0; i < heads; i++) rows.push_back(first + i);
    const std::string blk = beta.name.substr(0, beta.name.size() - std::string_view("ssm_beta.weight").size());
    return picked(blk + "ssm_ba.weight", stacked(beta.name, {in_f32(beta), in_f32(alpha)}), std::move(rows));
}

Tensor from_pytorch(Tensor t) {
    float (*change)(float) = nullptr;
    if (t.name.ends_with(".ssm_a")) change = [](float v) { return -std::exp(v); };
    if (t.name.ends_with("norm.weight") && !t.name.ends_with("ssm_norm.weight")) change = [](float v) { return v + 1; };
    if (change == nullptr) return t;
    return made_tensor(t.name, GgmlType::F32, t.rows, t.cols, [t, change](std::span<std::byte> to, uint32_t row) {
        std::vector<float> values(t.cols);
        std::vector<std::byte> scratch;
        t.decode(row, values, scratch);
        for (float& v : values) v = change(v);
        std::ranges::copy(std::as_bytes(std::span(values)), to.begin());
    });
}

RecurrentWeights collect_recurrent(TensorSource& in, const Config& c, const std::string& blk) {
    const Recurrent& r = *c.recurrent;
    RecurrentWeights w;
    collect_projections(w, in, c, blk);
    collect_gates(w, in, c, blk);
    w.ssm_conv1d = in.table(blk + "ssm_conv1d.weight", r.channels(), r.conv_kernel);
    w.ssm_a = in.vector(blk + "ssm_a", r.value_heads);
    w.ssm_dt = in.vector(blk + (in.has(blk + "ssm_dt") ? "ssm_dt" : "ssm_dt.bias"), r.value_heads); // as some writers name it
    w.ssm_norm = in.vector(blk + "ssm_norm.weight", r.head_dim);
    w.ssm_out = in.matrix(blk + "ssm_out.weight", c.hidden_size, r.value_size());
    return w;
}

SharedExpertWeights collect_shared_expert(TensorSource& in, const Config& c, const std::string& blk) {
    const uint32_t size = c.shared_expert_intermediate_size;
    return {in.vector(blk + "ffn_gate_inp_shexp.weight", c.hidden_size),
            in.matrix(blk + "ffn_gate_shexp.weight", size, c.hidden_size),
            in.matrix(blk + "ffn_up_shexp.weight", size, c.hidden_size),
            in.matrix(blk + "ffn_down_shexp.weight", c.hidden_size, size)};
}

GateUpExperts collect_gate_up_experts(TensorSource& in, const Config& c, const std::string& blk) {
    const uint32_t size = c.moe_intermediate_size;
    const Tensor all = in.experts(blk + "ffn_gate_up", c.num_experts, 2 * size, c.hidden_size);
    std::vector<Tensor> gates, ups;
    for (uint32_t expert = 0; expert < c.num_experts; expert++) {
        gates.push_back(all.slice(2 * expert * size, size));
        ups.push_back(all.slice((2 * expert + 1) * size, size));
    }
    return {stacked(blk + "ffn_gate_exps.weight", gates), stacked(blk + "ffn_up_exps.weight", ups)};
}

} // namespace tq
