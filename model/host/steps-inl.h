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

void q_norm_rope(Pass& pass, const Layer& l, std::vector<float>& q, PageScores& page_scores) {
    q_norm_rope(pass.pool, q, l.head_norms.q, pass.rope, pass.config.num_attention_heads, pass.config.head_norm_eps(), l.q_scale,
                l.q_rotation, l.head_norms.q_conditions, &page_scores);
    pass.result("q", q);
}

void split_gates(Pass& pass, std::vector<float>& q, std::vector<float>& gate, const std::vector<float>& q_gate) {
    split_gates(pass.pool, q, gate, q_gate, pass.config.head_dim);
}

void apply_gates(Pass& pass, std::vector<float>& y, const std::vector<float>& gate) {
    apply_gates(pass.pool, y, gate);
    pass.result("gated_attention", y);
}

void delta_inputs(Pass& pass, const Layer& l, std::vector<float>& qkv, std::vector<float>& beta, std::vector<float>& alpha) {
    conv_silu(pass.pool, qkv, l.recurrence->conv, *l.cache.states, pass.rows());
    pass.result("conv_silu", qkv);
    l2_norm(pass.pool, qkv, *l.cache.recurrent, pass.config.rms_norm_eps);
    pass.result("l2_norm", qkv);
    state_gates(pass.pool, beta, alpha, l.recurrence->a, l.recurrence->dt);
    pass.result("beta", beta);
    pass.result("alpha", alpha);
}

void delta_rule(Pass& pass, const Layer& l, std::vector<float>& y, const std::vector<float>& qkv, const std::vector<float>& beta,
                const std::vector<float>& alpha) {
    delta_rule(pass.pool, y, qkv, beta, alpha, *l.cache.states, pass.rows());
    pass.result("delta_rule", y);
}

void gated_norm(Pass& pass, const Layer& l, std::vector<float>& y, const std::vector<float>& z) {
    gated_norm(pass.pool, y, z, l.recurrence->norm, pass.config.rms_norm_eps);
    pass.result("gated_norm", y);
}

void share_gate(Pass& pass, const Layer& l, std::vector<float>& y, const std::vector<float>& x) {
    share_gate(pass.pool, y, l.shared->gate, x);
    pass.result("share_gate", y);
}

void mtp_inputs(Pass& pass, const Mtp& m, std::vector<float>& y, const std::vector<float>& e, const std::vector<float>& states) {
    const size_t cols = m.states.cols;
    std::vector<float> before(e.size()), normed(e.size());
    host::states_before(before, states, m.states, pass.rows());
    const auto put = [&](size_t first, const std::vector<float>& x, const Norm& w) {
        rms_norm(pass, normed, x, w);
        for (size_t t = 0; t < pass.rows().size(); t++) std::copy_n(&normed[t * cols], cols, &y[2 * t * cols + first]);
    };
    put(0, e, m.enorm);
    put(cols, before, m.hnorm);
}

void keep_states(Pass& pass, const Mtp& m, const std::vector<float>& states) { host::keep_states(m.states, states, pass.rows()); }

// The values of a pass, before they are stored: each channel over its scale, a power of two.
void divide_values(Pass& pass, const Layer& l, std::vector<float>& v) {
    const std::vector<float>& scales = l.value_scales;
    if (scales.empty()) return;
    pass.pool.each(uint32_t(v.size() / scales.size()), 16, [&](uint32_t begin, uint32_t end) {
        for (uint32_t t = begin; t < end; t++)
            for (size_t c = 0; c < scales.size(); c++) v[t * scales.size() + c] /= scales[c];
    });
}

// The output of attention, whose values have been divided: [rows][heads][head_dim]
void multiply_values(Pass& pass, const Layer& l, std::vector<float>& y) {
    if (l.value_scales.empty()) return;
    const uint32_t d = pass.config.head_dim, heads = pass.config.num_attention_heads,
                   group = heads / pass.config.num_key_value_heads;
    pass.pool.each(uint32_t(y.size() / d), 64, [&](uint32_t begin, uint32_t end) {
        for (uint32_t i = begin; i < end; i++) {
            const float* scales = &l.value_scales[size_t(i % heads / group) * d];
            for (uint32_t c = 0; c < d; c++) y[size_t(i) * d + c] *= scales[c];
        }
    });
}
