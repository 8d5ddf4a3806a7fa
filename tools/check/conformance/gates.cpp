// Rows of the gates that only hybrids have: of recurrent layers' output, of attention and of experts.
// Results go through a sigmoid or silu, so they have the limit of swiglu. The output of attn_q is divided without arithmetic
// (split_gates), so that must be exact. As elsewhere, recordings have room for more tokens than there are.
#include "model/gpu/recurrent.h"
#include "model/reference/recurrent.h"
#include "tools/check/conformance/rig.h"
#include "tools/check/conformance/rows.h"
#include <cmath>

namespace tq::conformance {
namespace {

constexpr uint32_t gate_dim = 128;
constexpr float gates_eps = 0.01f;  // a model's would be lost in the limits
constexpr double gate_limit = 1e-5; // as of swiglu, for the same reason

Outcome gated_norm(Rig& rig, const gpu::Tuning& tuning, uint32_t heads, uint32_t tokens) {
    const auto x = rig.random.normals(size_t(tokens) * heads * gate_dim), z = rig.random.normals(x.size(), 4),
               w = rig.random.normals(gate_dim);
    std::vector<float> want = x;
    ref::gated_norm(rig.pool, want, z, w, gates_eps);
    const Buffer y = rig.output(x), z_buffer = rig.upload(z), w_buffer = rig.upload(w), context = rig.context(0, tokens);
    rig.run(tuning, context, tokens + 2, gate_dim,
            [&](gpu::Pass& pass) { gpu::gated_norm(pass, y, z_buffer, w_buffer, heads, gates_eps); });
    return rig.check(y, want, gate_limit);
}

Outcome split_gates(Rig& rig, const gpu::Tuning& tuning, uint32_t head_dim, uint32_t heads, uint32_t tokens) {
    const uint32_t cols = heads * head_dim;
    const auto both = rig.random.normals(size_t(tokens) * 2 * cols);
    std::vector<float> want_q(both.size() / 2), want_gate(want_q.size());
    ref::split_gates(rig.pool, want_q, want_gate, both, head_dim);
    const Buffer both_buffer = rig.upload(both), q = rig.output(want_q.size()), gate = rig.output(want_q.size()),
                 context = rig.context(0, tokens);
    rig.run(tuning, context, tokens + 2, head_dim, [&](gpu::Pass& pass) { gpu::split_gates(pass, q, gate, both_buffer, cols); });
    return worse(rig.check(q, want_q, 0), rig.check(gate, want_gate, 0));
}

Outcome apply_gates(Rig& rig, const gpu::Tuning& tuning, uint32_t cols, uint32_t tokens) {
    const auto x = rig.random.normals(size_t(tokens) * cols), gate = rig.random.normals(x.size(), 4);
    std::vector<float> want = x;
    ref::apply_gates(rig.pool, want, gate);
    const Buffer y = rig.output(x), gate_buffer = rig.upload(gate), context = rig.context(0, tokens);
    rig.run(tuning, context, tokens + 2, gate_dim, [&](gpu::Pass& pass) { gpu::apply_gates(pass, y, gate_buffer, cols); });
    return rig.check(y, want, gate_limit);
}

Outcome share_gate(Rig& rig, const gpu::Tuning& tuning, uint32_t cols, uint32_t x_cols, uint32_t tokens) {
    const auto x = rig.random.normals(size_t(tokens) * x_cols), w = rig.random.normals(x_cols, 1 / std::sqrt(float(x_cols))),
               before = rig.random.normals(size_t(tokens) * cols);
    std::vector<float> want = before;
    ref::share_gate(rig.pool, want, w, x);
    const Buffer y = rig.output(before), w_buffer = rig.upload(w), x_buffer = rig.upload(x), context = rig.context(0, tokens);
    rig.run(tuning, context, tokens + 2, gate_dim,
            [&](gpu::Pass& pass) { gpu::share_gate(pass, y, w_buffer, x_buffer, cols, x_cols); });
    return rig.check(y, want, gate_limit);
}

} // namespace

void add_gates(Rows& rows, const Capabilities& device) {
    for (const NamedTuning& variant : variants(device)) {
        const gpu::Tuning tuning = variant.tuning;
        for (const auto& [heads, tokens] : {std::pair{1u, 1u}, {3u, 5u}, {16u, 8u}, {128u, 3u}})
            rows.push_back({"gated_norm", variant.name, fmt::format("{} heads, {} tokens", heads, tokens),
                            [=, heads = heads, tokens = tokens](Rig& rig) { return gated_norm(rig, tuning, heads, tokens); }});
        for (const auto& [head_dim, heads, tokens] : {std::tuple{64u, 1u, 1u}, {128u, 3u, 5u}, {256u, 24u, 2u}}) {
            const std::string shape = fmt::format("{} heads of {}, {} tokens", heads, head_dim, tokens);
            rows.push_back({"split_gates", variant.name, shape, [=, d = head_dim, heads = heads, tokens = tokens](Rig& rig) {
                                return split_gates(rig, tuning, d, heads, tokens);
                            }});
            rows.push_back({"apply_gates", variant.name, shape, [=, cols = heads * head_dim, tokens = tokens](Rig& rig) {
                                return apply_gates(rig, tuning, cols, tokens);
                            }});
        }
        for (const auto& [cols, x_cols, tokens] : {std::tuple{32u, 64u, 1u}, {512u, 2048u, 3u}, {1024u, 4096u, 8u}})
            rows.push_back({"share_gate", variant.name, fmt::format("{} of {} columns, {} tokens", cols, x_cols, tokens),
                            [=, cols = cols, x_cols = x_cols, tokens = tokens](Rig& rig) {
                                return share_gate(rig, tuning, cols, x_cols, tokens);
                            }});
    }
}

} // namespace tq::conformance
