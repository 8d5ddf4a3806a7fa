#include "model/reference/steps.h"

namespace tq::ref {

#include "model/host/steps-inl.h"

void matmul(Pass& pass, std::initializer_list<NamedProduct> products, const std::vector<float>& x) {
    for (const auto& [y, w] : products) {
        if (!w.bias.empty()) broadcast(y, w.bias);
        matmul(pass.pool, y, w.tensor, x, !w.bias.empty());
        pass.result(w.result, y);
    }
}

void matmul_add(Pass& pass, std::vector<float>& h, const Linear& w, const std::vector<float>& x) {
    matmul(pass.pool, h, w.tensor, x, true);
    pass.result(w.result, h);
}

void gated_matmul(Pass& pass, std::vector<float>& y, const GatedLinear& w, const std::vector<float>& x) {
    std::vector<float> up(y.size());
    matmul(pass.pool, y, w.gate.tensor, x);
    matmul(pass.pool, up, w.up.tensor, x);
    swiglu(pass.pool, y, up);
    pass.result("swiglu", y);
}

void gated_matmul(Pass& pass, std::vector<float>& y, const GatedLinear& w, const std::vector<float>& x, const Routes& routes) {
    const uint32_t used = pass.config.num_experts_per_tok, cols = pass.config.moe_intermediate_size;
    std::vector<float> up(cols);
    for (size_t pair = 0; pair < routes.ids.size(); pair++) {
        const uint32_t first = routes.ids[pair] * cols;
        const std::span gate = std::span(y).subspan(pair * cols, cols);
        const std::span token = std::span(x).subspan(pair / used * w.gate.tensor.cols, w.gate.tensor.cols);
        matmul(pass.pool, gate, w.gate.tensor.slice(first, cols), token);
        matmul(pass.pool, up, w.up.tensor.slice(first, cols), token);
        swiglu(pass.pool, gate, up);
    }
    pass.result("swiglu", y);
}

void matmul_add(Pass& pass, std::vector<float>& h, const Linear& w, const std::vector<float>& x, const Routes& routes) {
    const uint32_t used = pass.config.num_experts_per_tok, rows = pass.config.hidden_size, cols = w.tensor.cols;
    std::vector<float> y(rows);
    for (size_t pair = 0; pair < routes.ids.size(); pair++) {
        matmul(pass.pool, y, w.tensor.slice(routes.ids[pair] * rows, rows), std::span(x).subspan(pair * cols, cols));
        for (uint32_t r = 0; r < rows; r++) h[pair / used * rows + r] += routes.weights[pair] * y[r];
    }
    pass.result(w.result, h);
}

void kv_append(Pass& pass, const Layer& l, std::vector<float>& k, std::vector<float>& v) {
    divide_values(pass, l, v);
    kv_append(pass.pool, l.cache, KvSide::key, k, l.head_norms.k, pass.rope, pass.config.head_norm_eps(),
              l.head_norms.k_conditions);
    kv_append(pass.pool, l.cache, KvSide::value, v, {}, pass.rope, {});
    pass.result("kv_append", {});
}

void attention(Pass& pass, const Layer& l, std::vector<float>& y, const std::vector<float>& q, const PageScores& page_scores) {
    attention(pass.pool, y, q, page_scores, l.cache, pass.config.num_attention_heads, pass.rows());
    multiply_values(pass, l, y);
    pass.result("attention", y);
}

} // namespace tq::ref
