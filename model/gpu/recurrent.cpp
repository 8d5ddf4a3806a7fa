// The steps of recurrent layers (gated DeltaNet) on a device: delta_inputs makes queries, keys and values of the projections by a
// convolution over the last four tokens, and the gates; delta_rule advances the state, a matrix for each value head, token by
// token, and reads it; gated_norm finishes. Between them all intermediate rows are in one buffer (RecurrentRows), as a kernel has
// at most four.
// A state cannot be taken back, so tokens that a draft may lose are pending: their inputs are kept in a ring beside the state,
// and settle() applies them later, once they are certain. The same kernels do that, with `settle` set.
// In a block the rows of a span are walked in order, by the same invocations; of separate rows each is a span. Long blocks are
// cut into dispatches of max_delta_rule_rows tokens, so that none takes too long.
#include "model/gpu/recurrent.h"
#include "base/ensure.h"
#include "model/gpu/elementwise.h"
#include "model/gpu/kv_append.h"
#include "shaders.gen.h"
#include <algorithm>
#include <cmath>

namespace tq::gpu {
namespace {

constexpr uint32_t recurrent_head_dim = 128, taps = 4; // those of the kernels
constexpr uint32_t lanes = 16;                         // delta_rule.comp: invocations that share columns
constexpr uint32_t columns = 4;                        // the columns that they share

// The invocations of kernels that have a head each: of the subgroup variant, or of the other.
struct HeadWorkgroup {
    bool subgroup;
    uint32_t size;

    explicit HeadWorkgroup(const Tuning& t) : subgroup(head_subgroup(t, recurrent_head_dim, ROTATION_NONE) != 0) {
        size = subgroup ? head_subgroup(t, recurrent_head_dim, ROTATION_NONE) : t.workgroup;
    }
};

} // namespace

RecurrentRows::RecurrentRows(const Recurrent& r, uint32_t tokens) {
    const auto behind = [](uint64_t at, uint64_t count) { return round_up(at + count, max_alignment / 4); };
    const uint64_t channels = uint64_t(tokens) * r.channels(), heads = uint64_t(tokens) * r.value_heads;
    betas = behind(inputs, channels);
    alphas = behind(betas, heads);
    outputs = behind(alphas, heads);
    gates = behind(outputs, channels);
    floats = behind(gates, 2 * heads);
}

// Returns the content of one buffer: the taps of the convolution, then for each head the rate of decay and the bias, padded to 16
// bytes.
std::vector<float> delta_input_floats(std::span<const float> weights, std::span<const float> a, std::span<const float> dt) {
    std::vector<float> out(weights.begin(), weights.end());
    for (size_t head = 0; head < a.size(); head++) out.insert(out.end(), {a[head], dt[head], 0.0f, 0.0f});
    return out;
}

// On the rows of the pass, or for the pending tokens of a slot alone.
static void run_delta_inputs(Pass& pass, const RecurrentStep& step, const Buffer& weights, float eps, bool settle) {
    const Recurrent& r = step.shape;
    ENSURE(r.head_dim == recurrent_head_dim && r.conv_kernel == taps, "heads of {}, a convolution of {}", r.head_dim,
           r.conv_kernel);
    const RecurrentRows& at = step.at;
    const RecurrentSlot slot(r, step.pending);
    const delta_inputs_params params{.channels = r.channels(),
                                     .key_heads = r.key_heads,
                                     .value_heads = r.value_heads,
                                     .inputs = uint32_t(at.inputs),
                                     .betas = uint32_t(at.betas),
                                     .alphas = uint32_t(at.alphas),
                                     .outputs = uint32_t(at.outputs),
                                     .gates = uint32_t(at.gates),
                                     .state_floats = slot.floats,
                                     .history = slot.history,
                                     .pending_inputs = slot.inputs,
                                     .pending_outputs = slot.outputs,
                                     .pending_gates = slot.gates,
                                     .ring = slot.ring,
                                     .settle = settle,
                                     .eps = eps,
                                     .query_scale = 1 / std::sqrt(float(r.head_dim))};
    const uint64_t channels = r.channels(), heads = r.value_heads;
    const Work work = per_step(pass.step, [=](const Step& s) {
        return Work{s.tokens * (channels * 8 + heads * 16) + channels * 16, s.tokens * (channels * 16 + heads * 40)};
    });
    const HeadWorkgroup workgroup(pass.tuning);
    const Groups grid{uint32_t(channels / r.head_dim) + 1, pass.tokens};
    if (workgroup.subgroup)
        pass.recorder.dispatch<shader::delta_inputs_subgroup>(grid, {.workgroup = workgroup.size, .head_dim = r.head_dim}, params,
                                                              work, step.rows, step.states, weights, pass.context);
    else
        pass.recorder.dispatch<shader::delta_inputs>(grid, {.workgroup = workgroup.size, .head_dim = r.head_dim}, params, work,
                                                     step.rows, step.states, weights, pass.context);
}

void delta_inputs(Pass& pass, const RecurrentStep& step, const Buffer& weights, float eps) {
    run_delta_inputs(pass, step, weights, eps, false);
}

static void run_delta_rule(Pass& pass, const Buffer& y, const RecurrentStep& step, bool settle) {
    const Recurrent& r = step.shape;
    const Tuning& t = pass.tuning;
    const RecurrentSlot slot(r, step.pending);
    const bool separate = pass.rows_are_separate(), per_lane = t.texel_buffers, subgroup = !per_lane && t.subgroup >= lanes;
    delta_rule_params params{.channels = r.channels(),
                             .key_heads = r.key_heads,
                             .value_heads = r.value_heads,
                             .tiled = r.tiled_heads,
                             .inputs = uint32_t(step.at.outputs),
                             .gates = uint32_t(step.at.gates),
                             .state_floats = slot.floats,
                             .separate = separate,
                             .first_row = 0,
                             .max_rows = max_delta_rule_rows,
                             .pending_outputs = slot.outputs,
                             .pending_gates = slot.gates,
                             .ring = slot.ring,
                             .settle = settle};
    const uint32_t all_columns = r.head_dim / (per_lane ? 1 : columns) * (per_lane ? 1 : lanes), // a workgroup's at most
        workgroup = subgroup ? std::min(t.subgroup, 64u) : std::clamp(t.workgroup, per_lane ? 1 : lanes, all_columns),
                   its_columns = per_lane ? workgroup : workgroup / lanes * columns;
    ENSURE(its_columns != 0 && r.head_dim % its_columns == 0, "workgroups of {} for heads of {}", workgroup, r.head_dim);
    const Groups grid{r.value_heads * (r.head_dim / its_columns), separate ? pass.tokens : pass.spans};
    const uint64_t matrices = r.matrix_floats(), row = 4ull * (r.channels() + r.value_size() + 2 * r.value_heads);
    const Work work = per_step(pass.step, [=, spans = separate ? 1 : pass.spans](const Step& s) {
        return Work{std::min(s.tokens, spans) * matrices * 8 + s.tokens * row, s.tokens * matrices * 7};
    });
    const auto dispatch = [&]<const auto & kernel>() {
        pass.recorder.dispatch<kernel>(grid, {workgroup}, params, work, step.states, y, step.rows, pass.context);
    };
    for (; params.first_row < (separate ? 1 : pass.tokens); params.first_row += max_delta_rule_rows) {
        if (per_lane)
            dispatch.operator()<shader::delta_rule_per_lane>();
        else if (subgroup)
            dispatch.operator()<shader::delta_rule_subgroup>();
        else
            dispatch.operator()<shader::delta_rule>();
    }
}

void delta_rule(Pass& pass, const Buffer& y, const RecurrentStep& step) { run_delta_rule(pass, y, step, false); }

void settle(Pass& pass, const Buffer& y, const RecurrentStep& step, const Buffer& weights) {
    ENSURE(pass.tokens == 1 && pass.rows_are_separate(), "{} rows", pass.tokens);
    run_delta_inputs(pass, step, weights, 0, true);
    run_delta_rule(pass, y, step, true);
}

void gated_norm(Pass& pass, const Buffer& y, View z, const Buffer& w, uint32_t heads, float eps) {
    const uint64_t elements = uint64_t(heads) * recurrent_head_dim;
    const Work work = per_step(pass.step, [=](const Step& s) {
        return Work{s.tokens * elements * 12, s.tokens * elements * 10};
    });
    const HeadWorkgroup workgroup(pass.tuning);
    const Groups grid{heads, pass.tokens};
    const gated_norm_params params{heads, eps};
    if (workgroup.subgroup)
        pass.recorder.dispatch<shader::gated_norm_subgroup>(grid, {.workgroup = workgroup.size, .head_dim = recurrent_head_dim},
                                                            params, work, y, z, w, pass.context);
    else
        pass.recorder.dispatch<shader::gated_norm>(grid, {.workgroup = workgroup.size, .head_dim = recurrent_head_dim}, params,
                                                   work, y, z, w, pass.context);
}

void split_gates(Pass& pass, const Buffer& q, const Buffer& gate, const Buffer& both, uint32_t cols) {
    const uint64_t elements = cols;
    const Work work = per_step(pass.step, [=](const Step& s) { return Work{s.tokens * elements * 16, 0}; });
    pass.recorder.dispatch<shader::split_gates>({groups(cols / 4, pass.tuning.workgroup), pass.tokens}, {pass.tuning.workgroup},
                                                {cols, pass.head_dim}, work, q, gate, both, pass.context);
}

void apply_gates(Pass& pass, const Buffer& y, const Buffer& gate, uint32_t cols) {
    const uint64_t elements = cols;
    const Work work = per_step(pass.step, [=](const Step& s) { return Work{s.tokens * elements * 12, s.tokens * elements * 4}; });
    pass.recorder.dispatch<shader::apply_gates>({groups(cols / 4, pass.tuning.workgroup), pass.tokens}, {pass.tuning.workgroup},
                                                {cols}, work, y, gate, pass.context);
}

void share_gate(Pass& pass, const Buffer& y, const Buffer& w, const Buffer& x, uint32_t cols, uint32_t x_cols) {
    const uint64_t row = uint64_t(cols) * 8 + uint64_t(x_cols) * 4, operations = uint64_t(cols) + 2 * uint64_t(x_cols);
    const Work work = per_step(pass.step, [=](const Step& s) {
        return Work{s.tokens * row + x_cols * 4, s.tokens * operations};
    });
    pass.recorder.dispatch<shader::share_gate>({pass.tokens}, {row_workgroup(pass.tuning)}, {cols, x_cols}, work, y, x, w,
                                               pass.context);
}

} // namespace tq::gpu
