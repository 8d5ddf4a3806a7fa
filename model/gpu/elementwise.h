// Rows and elements: embedding, biases, norms, SwiGLU. These have only one implementation each, so they need no source file.
#pragma once
#include "model/gpu/device_layout.h"
#include "model/gpu/pass.h"
#include "model/gpu/weights.h"
#include "shaders.gen.h"
#include <algorithm>
#include <optional>

namespace tq::gpu {

// h[t] = row ids[t] of `embedding`. h: fp32 [tokens][cols], ids: uint32 [tokens]
inline void embed(Pass& pass, const Buffer& h, const Matrix& embedding, const Buffer& ids) {
    for (const MatrixSlice& slice : embedding.slices) {
        const embed_params params{embedding.cols, slice.first_row, slice.rows, embedding.scale_unit};
        const uint64_t cols = embedding.cols, row = device_row_bytes(embedding.type, embedding.cols);
        const Work work = per_step(pass.step, [=](const Step& s) { return Work{s.tokens * (row + cols * 4), s.tokens * cols}; });
        pass.recorder.dispatch<shader::embed>(family_member(embedding.type), {pass.tokens},
                                              {.workgroup = pass.tuning.workgroup, .interleave = embedding.interleave}, params,
                                              work, h, slice.buffer, ids, pass.context);
    }
}

// y[t] = x for every token. y: [tokens][cols]
inline void broadcast(Pass& pass, View y, const Buffer& x, uint32_t cols) {
    const Work work = per_step(pass.step, [=](const Step& s) { return Work{(uint64_t(s.tokens) + 1) * cols * 4, 0}; });
    pass.recorder.dispatch<shader::broadcast>({groups(cols / 4, pass.tuning.workgroup), pass.tokens}, {pass.tuning.workgroup},
                                              {cols}, work, y, x, pass.context);
}

// Invocations of a workgroup that has a whole row: on GPUs many, because each of them waits for its loads.
inline uint32_t row_workgroup(const Tuning& t) {
    return t.texel_buffers ? t.workgroup : std::min(std::max(t.workgroup, 256u), t.max_workgroup);
}

// y[t] = w * x[t] / sqrt(mean(x[t]^2) + eps). x, y: [tokens][cols]. `in_head`: of the rows of x that the context names
// (ContextLayout::write_head). `to`: the columns of y, if it has more.
struct Columns {
    uint32_t all, first;
};
inline void rms_norm(Pass& pass, const Buffer& y, const Buffer& x, const Buffer& w, uint32_t cols, float eps,
                     bool in_head = false, std::optional<Columns> to = {}) {
    const auto [y_cols, y_first] = to.value_or(Columns{cols, 0});
    const Work work = per_step(pass.step, [=](const Step& s) {
        const uint64_t elements = uint64_t(s.tokens) * cols;
        return Work{elements * 8 + cols * 4, elements * 4};
    });
    pass.recorder.dispatch<shader::rms_norm>({pass.tokens}, {row_workgroup(pass.tuning)}, {cols, eps, in_head, y_cols, y_first},
                                             work, y, x, w, pass.context);
}

// y[t] = the state of the token before that of row t: shaders/states_before.comp. x, y: [tokens][cols]; kept:
// [slots][ring][cols]
inline void states_before(Pass& pass, const Buffer& y, const Buffer& x, const Buffer& kept, uint32_t cols, uint32_t ring) {
    const Work work = per_step(pass.step, [=](const Step& s) { return Work{uint64_t(s.tokens) * cols * 8, 0}; });
    pass.recorder.dispatch<shader::states_before>({pass.tokens}, {pass.tuning.workgroup}, {cols, ring}, work, y, x, kept,
                                                  pass.context);
}
// Keeps the states of each slot's last rows.
inline void keep_states(Pass& pass, const Buffer& kept, const Buffer& x, uint32_t cols, uint32_t ring) {
    const Work work = per_step(pass.step, [=](const Step& s) { return Work{uint64_t(std::min(s.tokens, ring)) * cols * 8, 0}; });
    pass.recorder.dispatch<shader::keep_states>({pass.tokens}, {pass.tuning.workgroup}, {cols, ring}, work, kept, x,
                                                pass.context);
}

inline void record_swiglu(Pass& pass, const Buffer& y, View gate, View up, swiglu_params params) {
    const uint64_t cols = params.cols;
    const Work work = per_step(pass.step, [=](const Step& s) { return Work{s.tokens * cols * 12, s.tokens * cols * 5}; });
    pass.recorder.dispatch<shader::swiglu>({groups(cols / 4, pass.tuning.workgroup), pass.tokens}, {pass.tuning.workgroup},
                                           params, work, y, gate, up, pass.context);
}

// y = silu(gate) * up. y, gate, up: [tokens][cols]; or gate_up: [tokens][cols][2].
inline void swiglu(Pass& pass, const Buffer& y, View gate, View up, uint32_t cols) {
    record_swiglu(pass, y, gate, up, {cols, false});
}
inline void swiglu_pairs(Pass& pass, const Buffer& y, const Buffer& gate_up, uint32_t cols) {
    record_swiglu(pass, y, gate_up, gate_up, {cols, true});
}

} // namespace tq::gpu
