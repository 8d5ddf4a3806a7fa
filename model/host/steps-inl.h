// The steps that differ only in the kernels that they call: steps.cpp of model/reference and of model/cpu include this, each in
// its namespace.

void embed(Pass& pass, std::vector<float>& h, const Linear& embedding, std::span<const uint32_t> ids) {
    embed(pass.pool, h, embedding.tensor, ids);
    pass.result("embed", h);
}

void rms_norm(Pass& pass, std::vector<float>& y, const std::vector<float>& x, const Norm& w) {
    rms_norm(pass.pool, y, x, w.weights, pass.config.rms_norm_eps);
    pass.result(w.result, y);
}

void route(Pass& pass, Routes& routes, const Linear& router, const std::vector<float>& x) {
    const Config& c = pass.config;
    std::vector<float> logits(x.size() / c.hidden_size * c.num_experts);
    matmul(pass, {{logits, router}}, x);
    route(routes, logits, c.num_experts, c.num_experts_per_tok, c.norm_topk_prob);
}

void q_norm_rope(Pass& pass, const Layer& l, std::vector<float>& q) {
    q_norm_rope(pass.pool, q, l.head_norms.q, pass.rope, pass.config.num_attention_heads, pass.config.head_norm_eps(), l.q_scale,
                l.q_rotation, l.head_norms.q_conditions);
    pass.result("q", q);
}
