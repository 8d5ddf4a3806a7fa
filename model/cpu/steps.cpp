#include "model/cpu/steps.h"
#include "base/per_thread.h"
#include <optional>

namespace tq::cpu {

#include "model/host/steps-inl.h"

// Computes all products in one parallel loop, since threads wait for each other after it.
void matmul(Pass& pass, std::initializer_list<NamedProduct> products, const std::vector<float>& x) {
    std::vector<Product> all;
    std::optional<Tensor> shorter;
    for (const auto& [y, w] : products) {
        if (!w.bias.empty()) broadcast(y, w.bias);
        if (pass.shortened.matrix == &w.tensor) shorter.emplace(w.tensor).rows = pass.shortened.rows;
        all.push_back({y, pass.shortened.matrix == &w.tensor ? *shorter : w.tensor, !w.bias.empty()});
    }
    matmul(pass.pool, all, x, pass.separate);
    for (const auto& [y, w] : products) pass.result(w.result, y);
}

void matmul_add(Pass& pass, std::vector<float>& h, const Linear& w, const std::vector<float>& x) {
    matmul(pass.pool, {{h, w.tensor, true}}, x, pass.separate);
    pass.result(w.result, h);
}

void gated_matmul(Pass& pass, std::vector<float>& y, const GatedLinear& w, const std::vector<float>& x) {
    auto& up = per_thread<std::vector<float>, struct UpOutputs>(); // kept, since fresh memory costs page faults
    up.resize(y.size());
    gated_matmul(pass.pool, y, up, w.gate.tensor, w.up.tensor, x, pass.separate);
    pass.result("swiglu", y);
}

void gated_matmul(Pass& pass, std::vector<float>& y, const GatedLinear& w, const std::vector<float>& x, const Routes& routes) {
    const Experts experts{pass.config.num_experts, pass.config.num_experts_per_tok, routes};
    if (pass.from_file) read_ahead(pass.pool, {&w.gate.tensor, &w.up.tensor, &pass.layer()->ffn_down.tensor}, experts);
    gated_matmul(pass.pool, y, w.gate.tensor, w.up.tensor, x, experts, pass.separate);
    pass.result("swiglu", y);
}

void matmul_add(Pass& pass, std::vector<float>& h, const Linear& w, const std::vector<float>& x, const Routes& routes) {
    const Experts experts{pass.config.num_experts, pass.config.num_experts_per_tok, routes};
    matmul_add(pass.pool, h, w.tensor, x, experts, pass.separate);
    pass.result(w.result, h);
}

void kv_append(Pass& pass, const Layer& l, std::vector<float>& k, std::vector<float>& v) {
    divide_values(pass, l, v);
    kv_append(pass.pool, l.cache, k, v, l.head_norms.k, pass.rope, pass.config.head_norm_eps(), l.head_norms.k_conditions);
    pass.result("kv_append", {});
}

void attention(Pass& pass, const Layer& l, std::vector<float>& y, const std::vector<float>& q, const PageScores& page_scores) {
    attention(pass.pool, y, q, page_scores, l.cache, pass.config.num_attention_heads, pass.rows(),
              pass.in_blocks ? AttentionKernel::blocks : AttentionKernel::fastest);
    multiply_values(pass, l, y);
    pass.result("attention", y);
}

} // namespace tq::cpu
