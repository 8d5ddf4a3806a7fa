// Folded norms. A norm of one token is a short kernel that everything waits for. With tuning.fold_norms it has none of its own:
// 1. matmul_add, which adds to the residual stream h, also leaves the products of h with the next norm's weights and the sums of
//    h's squares behind h (matvec_residual), and notes this in pass.normed, with the norm's weights in pass.normed_by.
// 2. The step rms_norm then records nothing, and checks that it was this norm that was folded. If taps are on it runs anyway, so
//    that its result can be compared.
// 3. matmul, gated_matmul and route take the products in place of x and divide their sums by the rms (matvec_normed).
// Only a pass of one row does this. The result is rounded otherwise than rms_norm and matvec, so it is off if rows must have the
// bits that they have alone (tuning_for_rows in stage.cpp). The page (forward.cpp) does not show any of it.
#include "model/gpu/steps.h"
#include "base/ensure.h"
#include "runtime/uploader.h"
#include <fmt/format.h>

namespace tq::gpu {
namespace {

// y = w x of the normed h, or y += w x.
void project(ForwardPass& pass, View y, const Matrix& w, Inputs& x, bool accumulate = false) {
    ENSURE(!pass.normed || &x.x == &pass.scratch.a, "a folded norm is not that of x");
    if (pass.normed)
        matvec_normed(pass, y, w, *pass.normed, pass.config.rms_norm_eps, accumulate ? MATVEC_ADD : MATVEC_STORE);
    else
        matmul(pass, y, w, x, accumulate);
}

Buffer upload(Uploader& uploader, Device& device, std::span<const float> values) {
    Buffer buffer = device.allocate("head norm", values.size_bytes());
    uploader.write(buffer, std::as_bytes(values));
    return buffer;
}

} // namespace

std::vector<HeadNormBuffers> upload_head_norms(Device& device, const Config& config, const DeviceWeights& weights,
                                               const KvOptions& kv) {
    std::vector<HeadNormBuffers> out;
    Uploader uploader(device);
    const uint32_t layers = uint32_t(weights.layers.size());
    const auto or_ones = [&](const std::vector<float>& w) { return w.empty() ? std::vector(config.head_dim, 1.0f) : w; };
    for (uint32_t i = 0; i < layers + (weights.mtp ? 1 : 0); i++) {
        const LayerMatrices& w = i < layers ? weights.layers[i] : weights.mtp->layer;
        const HeadNorms norms = head_norms(kv.conditioning_of(i, layers), i, or_ones(w.attn_q_norm), or_ones(w.attn_k_norm),
                                           key_scaling(config, w.attention_squares, w.k_bias), config.rotary_dim);
        out.push_back({upload(uploader, device, head_norm_floats(norms.q, norms.q_conditions)),
                       upload(uploader, device, head_norm_floats(norms.k, norms.k_conditions)),
                       norms.k_conditions.empty() ? 0 : config.num_key_value_heads,
                       !norms.k_conditions.means.empty(),
                       {}});
        const std::vector<float> scales = value_scales(config, w.attention_squares);
        if (kv.scales_values(i, layers) && !scales.empty())
            out.back().value_scales =
                upload(uploader, device, value_scale_floats(kv.codec(i, layers, KvSide::value, config.head_dim), scales));
    }
    uploader.finish();
    return out;
}

Scratch make_scratch(const Allocate& allocate, const ScratchBytes& bytes) {
    return {.h = allocate("h", bytes.hidden + bytes.normed),
            .a = allocate("a", bytes.hidden),
            .q = allocate("q", bytes.q),
            .k = allocate("k", bytes.kv),
            .v = allocate("v", bytes.kv),
            .attn = allocate("attention", bytes.attn),
            .partials = allocate("partials", bytes.partials),
            .gate_up = allocate("gate and up", bytes.gate_up()),
            .ffn = allocate("swiglu", bytes.ffn),
            .rounded = allocate("rounded inputs", bytes.rounded),
            .logits = allocate("logits", bytes.logits),
            .candidates = allocate("candidates", bytes.candidates),
            .sampling = allocate("sampling", bytes.sampling),
            .router = allocate("router", bytes.router),
            .routes = allocate("routes", bytes.routes),
            .down = allocate("experts", bytes.down),
            .shared = allocate("shared expert", bytes.shared),
            .q_gate = allocate("queries and gates", 2 * bytes.gate),
            .gate = allocate("gates", bytes.gate),
            .recurrent_rows = allocate("recurrent rows", bytes.recurrent_rows),
            .z = allocate("z", bytes.delta),
            .delta = allocate("delta rule", bytes.delta),
            .e = allocate("embeddings of the head", bytes.mtp),
            .eh = allocate("inputs of the head", 2 * bytes.mtp),
            .before = allocate("states before", bytes.mtp),
            .rows_at = bytes.rows_at,
            .h_floats = uint32_t(bytes.hidden / 4),
            .page_scores = {uint32_t((bytes.q - bytes.page_scores) / 4), bytes.pages}};
}

static std::optional<Recurrence> recurrence_of(const LayerMatrices& w, const Buffer* states) {
    if (!w.recurrent) return std::nullopt;
    const RecurrentMatrices& r = *w.recurrent;
    return Recurrence{.attn_qkv = {r.attn_qkv},
                      .attn_gate = {r.attn_gate, "z"},
                      .ssm_beta = {r.ssm_beta},
                      .ssm_alpha = {r.ssm_alpha},
                      .inputs = r.inputs,
                      .norm = r.norm,
                      .states = states,
                      .ssm_out = {r.ssm_out, "attn_output", &w.ffn_norm}};
}

static std::optional<SharedExpert> shared_expert_of(const LayerMatrices& w, const Buffer& next_norm) {
    if (!w.shared) return std::nullopt;
    return SharedExpert{w.shared->gate, {w.shared->gate_up}, {w.shared->down, "shared", &next_norm}};
}

// Returns layer i, or that of the head for multi-token prediction; next: the norm after it.
static Layer make_layer(uint32_t i, const LayerMatrices& w, const HeadNormBuffers& head, const Buffer& next,
                        const DeviceStorage& cache) {
    return {.number = i,
            .attn_norm = {w.attn_norm, "attn_norm"},
            .attn_q = {w.attn_q, {}, nullptr, w.attn_q_bias ? &*w.attn_q_bias : nullptr},
            .attn_k = {w.attn_k, "k", nullptr, w.attn_k_bias ? &*w.attn_k_bias : nullptr},
            .attn_v = {w.attn_v, "v", nullptr, w.attn_v_bias ? &*w.attn_v_bias : nullptr},
            .attn_output = {w.attn_output, "attn_output", &w.ffn_norm},
            .q_norm = {head.q, head.kv_heads, head.has_means},
            .k_norm = {head.k, head.kv_heads, head.has_means},
            .value_scales = head.value_scales ? &*head.value_scales : nullptr,
            .cache = cache,
            .ffn_norm = {w.ffn_norm, "ffn_norm"},
            .router = w.ffn_gate_inp ? std::optional(Linear{*w.ffn_gate_inp, "router"}) : std::nullopt,
            .ffn_gate_up = {w.ffn_gate_up},
            .ffn_down = {w.ffn_down, "h", &next},
            .recurrence = recurrence_of(w, cache.states ? cache.states->of(i) : nullptr),
            .shared = shared_expert_of(w, next)};
}

Network::Network(const Config& config, const DeviceWeights& weights, const std::vector<HeadNormBuffers>& head_norms,
                 const DeviceStorage& cache)
    : token_embd{weights.token_embd}, output{weights.output(), "logits"}, output_norm{weights.output_norm, "output_norm"} {
    const uint32_t count = config.num_hidden_layers;
    for (uint32_t i = 0; i < count; i++) {
        const Buffer& next = i + 1 < count ? weights.layers[i + 1].attn_norm : weights.output_norm;
        layers.push_back(make_layer(i, weights.layers[i], head_norms[i], next, cache));
    }
    if (!weights.mtp || !cache.states || !cache.states->hidden()) return;
    const MtpMatrices& m = *weights.mtp;
    const Buffer& norm = m.norm ? *m.norm : weights.output_norm;
    mtp.emplace(Mtp{.token_embd = {m.token_embd ? *m.token_embd : weights.token_embd},
                    .output = {m.output ? *m.output : weights.output(), "logits"},
                    .eh_proj = {m.eh_proj, "eh_proj"},
                    .enorm = {m.enorm, "enorm"},
                    .hnorm = {m.hnorm, "hnorm"},
                    .norm = {norm, "output_norm"},
                    .layer = make_layer(count, m.layer, head_norms[count], norm, cache),
                    .states = *cache.states->hidden(),
                    .ring = hidden_ring(cache.states->pending())});
}

// The floats [begin, end) of the rows of recurrent layers. If there are no such layers, it is the whole buffer, which no kernel
// uses.
static View part_of_rows(const Scratch& s, uint64_t RecurrentRows::*begin, uint64_t RecurrentRows::*end) {
    if (!s.rows_at) return s.recurrent_rows;
    const uint64_t at = *s.rows_at.*begin;
    return {s.recurrent_rows, 4 * at, 4 * (*s.rows_at.*end - at)};
}

Activations::Activations(const Config& c, const Scratch& s, const Buffer& ids, const Buffer& logits)
    : ids(ids), h(s.h), a(s.a), q(s.q), k(s.k), v(s.v), attn(s.attn), ffn(s.ffn), logits(logits), q_gate(s.q_gate), gate(s.gate),
      shared(s.shared), qkv(part_of_rows(s, &RecurrentRows::inputs, &RecurrentRows::betas)),
      beta(part_of_rows(s, &RecurrentRows::betas, &RecurrentRows::alphas)),
      alpha(part_of_rows(s, &RecurrentRows::alphas, &RecurrentRows::outputs)), z(s.z), delta(s.delta), e(s.e), eh(s.eh),
      page_scores(s.page_scores), routes{s.routes, experts_of(c)} {}

void ForwardPass::begin(const Layer& next) {
    end_layers();
    layer = &next;
    recorder.begin_label(fmt::format("layer {}", next.number));
}

void ForwardPass::end_layers() {
    if (layer != nullptr) recorder.end_label();
    layer = nullptr;
}

void ForwardPass::result(std::string_view name, const View& x, uint32_t cols) {
    if (name.empty() || !taps.on()) return;
    taps.add(*this, layer != nullptr ? fmt::format("layer {} {}", layer->number, name) : std::string(name), x, cols);
}

void embed(ForwardPass& pass, const Buffer& h, const Linear& embedding, const Buffer& ids) {
    embed(pass, h, embedding.matrix, ids);
    pass.normed.reset();
    pass.result("embed", h, pass.config.hidden_size);
}

void rms_norm(ForwardPass& pass, const Buffer& y, const Buffer& x, const Norm& w) {
    const Config& c = pass.config;
    ENSURE(!pass.normed || pass.normed_by == &w.weights, "another norm was folded than {}", w.result);
    if (!pass.normed || pass.taps.on()) rms_norm(pass, y, x, w.weights, c.hidden_size, c.rms_norm_eps, pass.in_head);
    pass.result(w.result, y, c.hidden_size);
}

void matmul(ForwardPass& pass, std::initializer_list<Product> products, const Buffer& x) {
    Inputs inputs{x, pass.scratch.rounded};
    for (const auto& [y, w] : products)
        if (w.bias) broadcast(pass, y, *w.bias, w.matrix.rows);
    for (const auto& [y, w] : products) project(pass, y, w.matrix, inputs, w.bias != nullptr);
    for (const auto& [y, w] : products) pass.result(w.result, y, w.matrix.rows);
}

void matmul_add(ForwardPass& pass, const Buffer& h, const Linear& w, const Buffer& x) {
    pass.normed.reset();
    if (pass.tokens == 1 && pass.tuning.fold_norms) {
        pass.normed = matvec_residual(pass, h, pass.scratch.h_floats, w.matrix, x, *w.next_norm);
        pass.normed_by = w.next_norm;
    } else {
        Inputs inputs{x, pass.scratch.rounded};
        matmul(pass, h, w.matrix, inputs, true);
    }
    pass.result(w.result, h, pass.config.hidden_size);
}

void gated_matmul(ForwardPass& pass, const Buffer& y, const GatedLinear& w, const Buffer& x) {
    const Buffer& both = pass.scratch.gate_up;
    const Matrix& first = w.matrices[0];
    const uint32_t cols = w.matrices.size() == 2 ? first.rows : first.rows / 2;
    Inputs inputs{x, pass.scratch.rounded};
    if (w.matrices.size() == 2) {
        const uint64_t half = both.bytes() / 2;
        const View gate(both, 0, half), up(both, half, half);
        project(pass, gate, first, inputs);
        project(pass, up, w.matrices[1], inputs);
        swiglu(pass, y, gate, up, cols);
    } else if (pass.normed) {
        matvec_normed(pass, y, first, *pass.normed, pass.config.rms_norm_eps, MATVEC_GATED);
    } else if (pass.tokens == 1) { // the same bits as below
        matvec_gated(pass, y, first, x);
    } else {
        matmul(pass, both, first, inputs);
        swiglu_pairs(pass, y, both, cols);
    }
    pass.result("swiglu", y, cols);
}

void route(ForwardPass& pass, const Routes& routes, const Linear& router, const Buffer& x) {
    if (pass.normed) {
        matmul(pass, {{pass.scratch.router, router}}, x);
    } else {
        Inputs inputs{x, pass.scratch.rounded};
        matmul_narrow(pass, pass.scratch.router, router.matrix, inputs);
        pass.result(router.result, pass.scratch.router, router.matrix.rows);
    }
    route(pass, routes, pass.scratch.router);
}

void gated_matmul(ForwardPass& pass, const Buffer& y, const GatedLinear& w, const Buffer& x, const Routes& routes) {
    Inputs inputs{x, pass.scratch.rounded};
    std::optional<FoldedNorm> folded;
    if (pass.normed) folded.emplace(FoldedNorm{*pass.normed, pass.config.rms_norm_eps});
    gated_experts(pass, y, pass.scratch.gate_up, w.matrices, inputs, routes, folded);
    pass.result("swiglu", y, pass.config.intermediate_size);
}

void matmul_add(ForwardPass& pass, const Buffer& h, const Linear& w, const Buffer& x, const Routes& routes) {
    pass.normed.reset();
    Inputs inputs{x, pass.scratch.rounded, false, routes.experts.used};
    matmul_experts(pass, pass.scratch.down, w.matrix, inputs, routes);
    add_experts(pass, h, pass.scratch.down, routes, pass.config.hidden_size);
    pass.result(w.result, h, pass.config.hidden_size);
}

void kv_append(ForwardPass& pass, const Layer& l, const Buffer& k, const Buffer& v) {
    const Config& c = pass.config;
    ENSURE(&k == &pass.scratch.k && &v == &pass.scratch.v, "attention() keeps the window from there");
    k_append(pass, l.cache, l.number, k, l.k_norm, c.num_key_value_heads, c.head_norm_eps());
    v_append(pass, l.cache, l.number, v, c.num_key_value_heads, l.value_scales);
}

void q_norm_rope(ForwardPass& pass, const Layer& l, const Buffer& q, const PageScores& page_scores) {
    const Config& c = pass.config;
    q_norm_rope(pass, q, page_scores, l.q_norm, c.num_attention_heads, c.head_norm_eps(), l.cache.layers[l.number].k);
    pass.result("q", q, c.num_attention_heads * c.head_dim);
}

// A block enters the window after attention has read the tokens that it replaces there.
void attention(ForwardPass& pass, const Layer& l, const Buffer& y, const Buffer& q, const PageScores& page_scores) {
    const Config& c = pass.config;
    const Scratch& s = pass.scratch;
    attention(pass, y, s.partials, q, l.q_norm.has_means ? page_scores : PageScores{}, l.cache, l.number, c.num_attention_heads,
              c.num_key_value_heads, l.value_scales);
    keep_window(pass, l.cache, l.number, s.k, l.k_norm, s.v, c.num_key_value_heads, c.head_norm_eps(), l.value_scales);
    pass.result("attention", y, c.num_attention_heads * c.head_dim);
}

void mtp_inputs(ForwardPass& pass, const Mtp& m, const Buffer& y, const Buffer& e, const Buffer& states) {
    const Config& c = pass.config;
    const uint32_t cols = c.hidden_size;
    const Buffer& before = pass.scratch.before;
    ENSURE(!pass.normed, "a folded norm is not in a");
    states_before(pass, before, states, m.states, cols, m.ring);
    rms_norm(pass, y, e, m.enorm.weights, cols, c.rms_norm_eps, false, Columns{2 * cols, 0});
    rms_norm(pass, y, before, m.hnorm.weights, cols, c.rms_norm_eps, false, Columns{2 * cols, cols});
}

void keep_states(ForwardPass& pass, const Mtp& m, const Buffer& states) {
    keep_states(pass, m.states, states, pass.config.hidden_size, m.ring);
}

void split_gates(ForwardPass& pass, const Buffer& q, const Buffer& gate, const Buffer& q_gate) {
    split_gates(pass, q, gate, q_gate, pass.config.num_attention_heads * pass.config.head_dim);
}

void apply_gates(ForwardPass& pass, const Buffer& y, const Buffer& gate) {
    const uint32_t cols = pass.config.num_attention_heads * pass.config.head_dim;
    apply_gates(pass, y, gate, cols);
    pass.result("gated_attention", y, cols);
}

// The rows that delta_inputs() leaves for delta_rule() are in the same buffer as its inputs.
static RecurrentStep step_of(const ForwardPass& pass, const Layer& l, const View& qkv) {
    const Scratch& s = pass.scratch;
    ENSURE(qkv.buffer == &s.recurrent_rows && l.recurrence->states != nullptr, "layer {} has no rows or states", l.number);
    return {*pass.config.recurrent, s.recurrent_rows, *s.rows_at, *l.recurrence->states, l.cache.states->pending()};
}

void delta_inputs(ForwardPass& pass, const Layer& l, const View& qkv, const View&, const View&) {
    const RecurrentStep step = step_of(pass, l, qkv);
    delta_inputs(pass, step, l.recurrence->inputs, pass.config.rms_norm_eps);
    pass.result("l2_norm", part_of_rows(pass.scratch, &RecurrentRows::outputs, &RecurrentRows::gates), step.shape.channels());
}

void settle(ForwardPass& pass, const Layer& l, const Activations& x) {
    settle(pass, x.delta, step_of(pass, l, x.qkv), l.recurrence->inputs);
}

void delta_rule(ForwardPass& pass, const Layer& l, const Buffer& y, const View& qkv, const View&, const View&) {
    const RecurrentStep step = step_of(pass, l, qkv);
    delta_rule(pass, y, step);
    pass.result("delta_rule", y, step.shape.value_size());
}

void gated_norm(ForwardPass& pass, const Layer& l, const Buffer& y, const Buffer& z) {
    const Recurrent& r = *pass.config.recurrent;
    gated_norm(pass, y, z, l.recurrence->norm, r.value_heads, pass.config.rms_norm_eps);
    pass.result("gated_norm", y, r.value_size());
}

void share_gate(ForwardPass& pass, const Layer& l, const Buffer& y, const Buffer& x) {
    const Config& c = pass.config;
    ENSURE(!pass.normed, "the normed h is not in x");
    share_gate(pass, y, l.shared->gate, x, c.shared_expert_intermediate_size, c.hidden_size);
    pass.result("share_gate", y, c.shared_expert_intermediate_size);
}

} // namespace tq::gpu
