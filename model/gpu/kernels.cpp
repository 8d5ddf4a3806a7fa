#include "model/gpu/kernels.h"
#include "base/ensure.h"
#include "model/gpu/constants.h"
#include "model/gpu/device_layout.h"
#include "model/gpu/recording.h"
#include <algorithm>

// clang-format off
// The kernel `stem`_FORMAT for each weight format: one(type, kernel, ...).
#define EACH_FORMAT(one, stem, suffix, ...)                                                                                      \
    one(F32, stem##_f32##suffix, __VA_ARGS__)                                                                                    \
    EACH_SHORT_FORMAT(one, stem, suffix, __VA_ARGS__)
#define EACH_SHORT_FORMAT(one, stem, suffix, ...)                                                                                \
    one(F16, stem##_f16##suffix, __VA_ARGS__)                                                                                    \
    one(BF16, stem##_bf16##suffix, __VA_ARGS__)                                                                                  \
    one(Q8_0, stem##_q8_0##suffix, __VA_ARGS__)                                                                                  \
    one(Q4_0, stem##_q4_0##suffix, __VA_ARGS__)                                                                                  \
    one(Q4_1, stem##_q4_1##suffix, __VA_ARGS__)                                                                                  \
    one(Q5_0, stem##_q5_0##suffix, __VA_ARGS__)                                                                                  \
    one(Q5_1, stem##_q5_1##suffix, __VA_ARGS__)                                                                                  \
    one(Q2_K, stem##_q2_k##suffix, __VA_ARGS__)                                                                                  \
    one(Q3_K, stem##_q3_k##suffix, __VA_ARGS__)                                                                                  \
    one(Q4_K, stem##_q4_k##suffix, __VA_ARGS__)                                                                                  \
    one(Q5_K, stem##_q5_k##suffix, __VA_ARGS__)                                                                                  \
    one(Q6_K, stem##_q6_k##suffix, __VA_ARGS__)                                                                                  \
    one(IQ4_NL, stem##_iq4_nl##suffix, __VA_ARGS__)                                                                              \
    one(IQ4_XS, stem##_iq4_xs##suffix, __VA_ARGS__)                                                                              \
    one(MXFP4, stem##_mxfp4##suffix, __VA_ARGS__)
#define DISPATCH_ONE(format, kernel, ...)                                                                                        \
    case GgmlType::format: recorder.dispatch<shader::kernel>(__VA_ARGS__); break;

// Records shader::STEM_<format>SUFFIX for a matrix's weight format; DISPATCH_SHORT_FORMAT where there is none for F32.
#define DISPATCH_FORMAT(stem, suffix, type, ...)                                                                                 \
    switch (type) {                                                                                                              \
        EACH_FORMAT(DISPATCH_ONE, stem, suffix, __VA_ARGS__)                                                                     \
    }
#define DISPATCH_SHORT_FORMAT(stem, type, ...)                                                                                   \
    switch (type) {                                                                                                              \
        EACH_SHORT_FORMAT(DISPATCH_ONE, stem, , __VA_ARGS__)                                                                     \
    default: ENSURE(false, "{}", uint32_t(type));                                                                                \
    }
// clang-format on

namespace tq::gpu {
namespace {

// One vector's way through a matrix.
struct Matvec {
    View y, x;
    std::optional<View> next_norm = {};
    uint32_t output;
    bool normed = false;
    uint32_t squares = 0, square_count = 0; // as in matvec_params
    float eps = 0;
    uint32_t scaled = 0;
};

// Returns how many workgroups that takes.
uint32_t record_matvec(Pass& pass, const Matvec& v, const Matrix& w) {
    Recorder& recorder = pass.recorder;
    const Tuning& t = pass.tuning;
    const bool folds = v.normed || v.output == MATVEC_RESIDUAL;
    const View& last = v.next_norm ? *v.next_norm : v.x; // a binding is never empty
    const auto constants = matvec_constants(t, w.interleave, v.output, v.normed);
    uint32_t all_groups = 0;
    for (const MatrixSlice& slice : w.slices) {
        const uint32_t squares = v.squares + (v.output == MATVEC_RESIDUAL ? all_groups : 0);
        const matvec_params params{w.cols, slice.rows, slice.first_row, squares, v.square_count, v.eps, v.scaled};
        const Work work{slice.buffer.bytes() + w.cols * 4 + slice.rows * 4, 2ull * w.cols * slice.rows};
        const Groups grid{groups(slice.rows, matvec_tile(t, v.output).rows_per_workgroup())};
        if (!folds && uses_simd(pass, {slice.buffer, v.x})) {
            DISPATCH_FORMAT(matvec, _simd, w.type, grid, constants, params, work, v.y, slice.buffer, v.x)
        } else if (matvec_uses_subgroup(t)) {
            DISPATCH_FORMAT(matvec, _subgroup, w.type, grid, constants, params, work, v.y, slice.buffer, v.x, last)
        } else {
            DISPATCH_FORMAT(matvec, , w.type, grid, constants, params, work, v.y, slice.buffer, v.x, last)
        }
        all_groups += grid.x;
    }
    return all_groups;
}

void record_swiglu(Pass& pass, const Buffer& y, View gate, View up, swiglu_params params) {
    const uint64_t cols = params.cols;
    const Work work = per_step(pass.step, [=](const Step& s) { return Work{s.tokens * cols * 12, s.tokens * cols * 5}; });
    pass.recorder.dispatch<shader::swiglu>({groups(cols / 4, pass.tuning.workgroup), pass.tokens}, swiglu_constants(pass.tuning),
                                           params, work, y, gate, up, pass.context);
}

} // namespace

bool uses_simd(const Pass& pass, std::initializer_list<View> reads) {
    const auto fits = [&](const View& view) { return view.bytes <= pass.tuning.texel_range_bytes && view.bytes % 16 == 0; };
    return pass.tuning.simd && std::ranges::all_of(reads, fits);
}

void embed(Pass& pass, const Buffer& h, const Matrix& embedding, const Buffer& ids) {
    Recorder& recorder = pass.recorder;
    for (const MatrixSlice& slice : embedding.slices) {
        const embed_params params{embedding.cols, slice.first_row, slice.rows};
        const uint64_t cols = embedding.cols, row = device_row_bytes(embedding.type, embedding.cols);
        const Work work = per_step(pass.step, [=](const Step& s) { return Work{s.tokens * (row + cols * 4), s.tokens * cols}; });
        DISPATCH_FORMAT(embed, , embedding.type, {pass.tokens}, embed_constants(pass.tuning, embedding.interleave), params, work,
                        h, slice.buffer, ids, pass.context)
    }
}

void rms_norm(Pass& pass, const Buffer& y, const Buffer& x, const Buffer& w, uint32_t cols, float eps, bool last_only) {
    const uint32_t rows = last_only ? 1 : pass.tokens;
    const Work work = per_step(pass.step, [=](const Step& s) {
        const uint64_t elements = uint64_t(last_only ? 1 : s.tokens) * cols;
        return Work{elements * 8 + cols * 4, elements * 4};
    });
    pass.recorder.dispatch<shader::rms_norm>({rows}, rms_norm_constants(pass.tuning), {cols, eps, last_only}, work, y, x, w,
                                             pass.context);
}

void matvec(Pass& pass, View y, const Matrix& w, View x, bool accumulate) {
    record_matvec(pass, {.y = y, .x = x, .output = accumulate ? MATVEC_ADD : MATVEC_STORE}, w);
}

void matvec_gated(Pass& pass, View y, const Matrix& w, View x) {
    record_matvec(pass, {.y = y, .x = x, .output = MATVEC_GATED}, w);
}

void matvec_normed(Pass& pass, View y, const Matrix& w, const Normed& x, float eps, bool gated) {
    record_matvec(pass,
                  {.y = y,
                   .x = x.x,
                   .output = gated ? MATVEC_GATED : MATVEC_STORE,
                   .normed = true,
                   .squares = x.squares,
                   .square_count = x.square_count,
                   .eps = eps},
                  w);
}

// Behind h: the products [rows], then the sums, each from a multiple of 64 floats on.
uint64_t normed_floats(uint32_t rows) { return 2 * round_up(rows, 64); }

Normed matvec_residual(Pass& pass, const Buffer& h, uint32_t h_floats, const Matrix& w, const Buffer& x,
                       const Buffer& next_norm) {
    const auto squares = uint32_t(round_up(w.rows, 64));
    const uint32_t count = record_matvec(
        pass,
        {.y = h, .x = x, .next_norm = next_norm, .output = MATVEC_RESIDUAL, .squares = h_floats + squares, .scaled = h_floats},
        w);
    ENSURE(squares + count <= normed_floats(w.rows), "{} sums of {} rows", count, w.rows);
    return {View(h, uint64_t(h_floats) * 4, normed_floats(w.rows) * 4), squares, count};
}

MatmulKernel matmul_kernel(const Tuning& tuning, GgmlType type, uint32_t tokens) {
    if (tokens <= tuning.matmul_tile) return MatmulKernel::plain;
    if (tuning.matmul_coopmat && type != GgmlType::F32) return MatmulKernel::coopmat;
    return tuning.matmul_tiled ? MatmulKernel::tiled : MatmulKernel::plain;
}

void matmul(Pass& pass, View y, const Matrix& w, const Buffer& x, bool accumulate) {
    if (pass.tokens == 1) return matvec(pass, y, w, x, accumulate);
    Recorder& recorder = pass.recorder;
    const MatmulKernel kernel = matmul_kernel(pass.tuning, w.type, pass.tokens);
    for (const MatrixSlice& slice : w.slices) {
        const matmul_params params{w.cols, slice.rows, slice.first_row, w.rows};
        const uint64_t weight_bytes = slice.buffer.bytes(), cols = w.cols, rows = slice.rows;
        const Work work = per_step(pass.step, [=](const Step& s) {
            return Work{weight_bytes + s.tokens * (cols + rows) * 4, 2 * s.tokens * cols * rows};
        });
#if TQ_COOPERATIVE_MATRIX
        if (kernel == MatmulKernel::coopmat) {
            const CoopmatTile tile = coopmat_tile(pass.tuning);
            const Groups grid{groups(slice.rows, tile.rows), groups(pass.tokens, tile.tokens)};
            DISPATCH_SHORT_FORMAT(matmul_coopmat, w.type, grid, matmul_coopmat_constants(pass.tuning, w.interleave, accumulate),
                                  params, work, y, slice.buffer, x, pass.context)
            continue;
        }
#endif
        if (kernel == MatmulKernel::tiled) {
            const MatmulTile tile = matmul_tile(pass.tuning);
            const Groups grid{groups(slice.rows, tile.rows), groups(pass.tokens, tile.tokens)};
            DISPATCH_FORMAT(matmul_tiled, , w.type, grid, matmul_tiled_constants(pass.tuning, w.interleave, accumulate), params,
                            work, y, slice.buffer, x, pass.context)
            continue;
        }
        const Groups grid{groups(slice.rows, pass.tuning.workgroup * pass.tuning.matmul_rows),
                          groups(pass.tokens, pass.tuning.matmul_tile)};
        const auto constants = matmul_constants(pass.tuning, w.interleave, accumulate);
        if (uses_simd(pass, {slice.buffer, x})) {
            DISPATCH_FORMAT(matmul, _simd, w.type, grid, constants, params, work, y, slice.buffer, x, pass.context)
        } else {
            DISPATCH_FORMAT(matmul, , w.type, grid, constants, params, work, y, slice.buffer, x, pass.context)
        }
    }
}

void swiglu(Pass& pass, const Buffer& y, View gate, View up, uint32_t cols) { record_swiglu(pass, y, gate, up, {cols, false}); }

void swiglu_pairs(Pass& pass, const Buffer& y, const Buffer& gate_up, uint32_t cols) {
    record_swiglu(pass, y, gate_up, gate_up, {cols, true});
}

uint64_t draw_bytes(uint32_t vocab_size) { return drawn_offset + drawn_bytes + (vocab_size + 31) / 32 * 4; }

void sample_candidates(Pass& pass, const Buffer& candidates, const Buffer& logits, const Buffer& draw, uint32_t vocab_size) {
    const uint32_t stretches = groups(vocab_size, DRAW_STRETCH);
    const Work work{4ull * vocab_size + candidates_bytes(vocab_size) + draw_bytes(vocab_size), 4ull * vocab_size};
    pass.recorder.dispatch<shader::sample_candidates>({stretches}, sample_candidates_constants(pass.tuning), {vocab_size}, work,
                                                      candidates, logits, draw);
}

uint64_t candidates_bytes(uint32_t vocab_size) { return uint64_t(groups(vocab_size, DRAW_STRETCH)) * DRAW_CANDIDATES * 2 * 4; }

void sample(Pass& pass, const Buffer& ids, const Buffer& draw, const Buffer& candidates, uint32_t vocab_size) {
    pass.recorder.dispatch<shader::sample>({1}, sample_constants(pass.tuning), {groups(vocab_size, DRAW_STRETCH)},
                                           {candidates_bytes(vocab_size), 0}, ids, draw, candidates, pass.context);
}

} // namespace tq::gpu
