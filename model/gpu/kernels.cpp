#include "model/gpu/kernels.h"
#include "base/ensure.h"
#include "model/gpu/constants.h"
#include "model/gpu/device_layout.h"
#include <algorithm>
#include <cmath>

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

constexpr uint64_t round_up(uint64_t n, uint64_t unit) { return (n + unit - 1) / unit * unit; }
constexpr uint32_t groups(uint64_t count, uint32_t per_group) { return uint32_t((count + per_group - 1) / per_group); }

// The Work of what depends on the step: `work(step)` as recorded, and asked again for each run that is profiled.
template <class F> Work per_step(const Step& step, F work) {
    Work most = work(step);
    most.now = [&step, work] { return work(step); };
    return most;
}

template <class Params> Params with_signs(Params params, const Rotation& rotation) {
    std::ranges::copy(rotation.signs, params.signs);
    std::ranges::copy(rotation.projection, params.projection);
    return params;
}

// The matrix of a dense rotation; otherwise `unused`, for a binding is never empty.
const Buffer& matrix_or(const Buffer& unused, const CacheCodec& codec) { return codec.matrix ? *codec.matrix : unused; }

void norm_rope(Pass& pass, const Buffer& q, const HeadNorm& norm, uint32_t heads, q_norm_rope_params params, uint32_t rotation,
               const CacheCodec& keys, bool projected) {
    const Buffer& w = norm.weights;
    const uint64_t row = uint64_t(heads) * pass.head_dim;
    const Work work = per_step(pass.step, [=](const Step& s) { return Work{s.tokens * row * 8, s.tokens * row * 20}; });
    const uint32_t subgroup = head_subgroup(pass.tuning, pass.head_dim, rotation);
    const bool conditioned = norm.kv_heads != 0;
    const auto constants = q_norm_rope_constants(pass.tuning, subgroup, pass.head_dim, rotation, projected, conditioned);
    params = with_signs(params, keys.rotation);
    params.group = conditioned ? heads / norm.kv_heads : 1;
    const Groups grid{heads, pass.tokens};
    if (subgroup)
        pass.recorder.dispatch<shader::q_norm_rope_subgroup>(grid, constants, params, work, q, w, pass.context);
    else
        pass.recorder.dispatch<shader::q_norm_rope>(grid, constants, params, work, q, w, pass.context, matrix_or(w, keys));
}

// One side of a slice, and the word at which it begins: keys and values need not wait for each other. The whole slice where
// values do not begin at what every device can bind.
struct SideOfSlice {
    View view;
    uint32_t begin = 0;

    SideOfSlice(const CacheSlice& slice, KvSide side) : view(slice.buffer) {
        constexpr uint32_t most_alignment = 256; // that Vulkan lets a device ask for
        const uint64_t keys = uint64_t(slice.layout.v_codes) * 4;
        if (keys % most_alignment != 0) return;
        if (side == KvSide::value) begin = slice.layout.v_codes;
        view = side == KvSide::key ? View(slice.buffer, 0, keys) : View(slice.buffer, keys, slice.buffer.bytes() - keys);
    }
};

// `is_key`: k-norm by w, RoPE and conditions come first.
void append(Pass& pass, const KvCache& cache, uint32_t layer, KvSide side, bool is_key, const Buffer& x, const HeadNorm& w,
            uint32_t kv_heads, float eps) {
    const LayerCache& here = cache.layers[layer];
    const CacheCodec& codec = here.side(side);
    const uint32_t rotation = codec.rotation_constant();
    const uint32_t subgroup = append_subgroup(pass.tuning, pass.head_dim, codec.type, rotation);
    const auto constants = kv_append_constants(pass.tuning, subgroup, pass.head_dim, codec.type, is_key, rotation,
                                               codec.scale_rule, is_key && w.kv_heads != 0);
    for (const CacheSlice& slice : here.slices) {
        const SideOfSlice to(slice, side);
        const uint32_t codes = slice.layout.codes(side) - to.begin, scales = slice.layout.scales(side) - to.begin;
        const auto params =
            with_signs(kv_append_params{kv_heads, slice.first_head, here.capacity, codes, scales, eps, {}, {}}, codec.rotation);
        const uint64_t heads = slice.heads, d = pass.head_dim, bytes = kv_vector_bytes(codec.type, pass.head_dim);
        const Work work = per_step(pass.step, [=](const Step& s) {
            return Work{s.tokens * heads * (d * 4 + bytes), s.tokens * heads * d * 30};
        });
        const Groups grid{slice.heads, pass.tokens};
        const Buffer& weight = matrix_or(w.weights, codec);
        const auto dispatch = [&]<const auto & kernel>() {
            pass.recorder.dispatch<kernel>(grid, constants, params, work, to.view, x, weight, pass.context);
        };
        if (is_trellis(codec.type) && subgroup)
            dispatch.operator()<shader::kv_append_subgroup_trellis>();
        else if (is_trellis(codec.type))
            dispatch.operator()<shader::kv_append_trellis>();
        else if (subgroup)
            dispatch.operator()<shader::kv_append_subgroup>();
        else
            dispatch.operator()<shader::kv_append>();
    }
}

// The parts that `splits` workgroups made of each head, put together and turned back.
void merge(Pass& pass, const Buffer& y, const Buffer& partials, const CacheCodec& values, uint32_t heads, uint32_t splits) {
    const uint32_t lanes = attention_lanes(pass.tuning, pass.head_dim), rotation = values.rotation_constant();
    const auto params =
        with_signs(attention_merge_params{heads, splits, lanes, QJL_FACTOR / float(pass.head_dim), {}, {}}, values.rotation);
    const uint64_t row = uint64_t(heads) * pass.head_dim;
    const Work work = per_step(pass.step, [=](const Step& s) {
        return Work{s.tokens * row * 4 * (splits + 1), s.tokens * row * (splits * 4 + 14)};
    });
    const uint32_t subgroup = head_subgroup(pass.tuning, pass.head_dim, rotation);
    const auto constants = attention_merge_constants(pass.tuning, subgroup, pass.head_dim, rotation, is_qjl(values.type));
    const Groups grid{heads, pass.tokens};
    if (subgroup)
        pass.recorder.dispatch<shader::attention_merge_subgroup>(grid, constants, params, work, y, partials, pass.context);
    else
        pass.recorder.dispatch<shader::attention_merge>(grid, constants, params, work, y, partials, pass.context,
                                                        matrix_or(partials, values));
}

// Whether kernels that read these buffers are to be SIMD variants, which have texels for them.
bool uses_simd(const Pass& pass, std::initializer_list<View> reads) {
    const auto fits = [&](const View& view) { return view.bytes <= pass.tuning.texel_range_bytes && view.bytes % 16 == 0; };
    return pass.tuning.simd && std::ranges::all_of(reads, fits);
}

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

uint32_t split_count(const Tuning& tuning, uint32_t tokens) { return tokens == 1 ? tuning.splits : 1; }

} // namespace

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
    if (tuning.matmul_subgroup != 0 && type != GgmlType::F32) return MatmulKernel::coopmat;
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

std::vector<float> head_norm_floats(std::span<const float> weights, const HeadConditions& conditions) {
    const std::ptrdiff_t d = std::ssize(weights);
    std::vector<float> out(weights.begin(), weights.end());
    for (auto at = conditions.factors.begin(), mean = conditions.means.begin(); at != conditions.factors.end();
         at += d, mean += d) {
        out.insert(out.end(), at, at + d);
        out.insert(out.end(), mean, mean + d);
    }
    return out;
}

void q_norm_rope(Pass& pass, const Buffer& q, const HeadNorm& w, uint32_t heads, float eps, const CacheCodec& keys) {
    const uint32_t d = pass.head_dim, rotation = keys.rotation_constant();
    const float scale = 1 / std::sqrt(float(d)) / (rotation == ROTATION_NONE ? 1 : keys.rotation.gain());
    norm_rope(pass, q, w, heads, {heads, eps, scale, pass.tokens * heads * d, scale * QJL_FACTOR / float(d), 1, {}, {}}, rotation,
              keys, is_qjl(keys.type));
}

uint64_t q_floats(uint32_t tokens, uint32_t heads, uint32_t head_dim, bool projected) {
    return uint64_t(tokens) * heads * head_dim * (projected ? 2 : 1);
}

void k_append(Pass& pass, const KvCache& cache, uint32_t layer, const Buffer& k, const HeadNorm& w, uint32_t kv_heads,
              float eps) {
    const CacheCodec& codec = cache.layers[layer].k;
    const bool dense = codec.matrix.has_value(); // its binding is taken: the norm comes by itself
    if (dense) norm_rope(pass, k, w, kv_heads, {kv_heads, eps, 1, 0, 0, 1, {}, {}}, ROTATION_NONE, codec, false);
    append(pass, cache, layer, KvSide::key, !dense, k, w, kv_heads, eps);
}

void v_append(Pass& pass, const KvCache& cache, uint32_t layer, const Buffer& v, uint32_t kv_heads) {
    append(pass, cache, layer, KvSide::value, false, v, {v}, kv_heads, 0);
}

void kv_decode(Pass& pass, const Buffer& x, const KvCache& cache, uint32_t layer, KvSide side, uint32_t kv_heads,
               uint32_t position) {
    const LayerCache& here = cache.layers[layer];
    const CacheCodec& codec = here.side(side);
    for (const CacheSlice& slice : here.slices) {
        const CacheLayout& at = slice.layout;
        const kv_decode_params params{kv_heads, slice.first_head, here.capacity, at.codes(side), at.scales(side), position, {},
                                      {}};
        const uint64_t vectors = uint64_t(slice.heads) * pass.tokens, d = pass.head_dim;
        const Work work{vectors * (d * 4 + kv_vector_bytes(codec.type, pass.head_dim)), vectors * d * 16};
        pass.recorder.dispatch<shader::kv_decode>(
            {slice.heads, pass.tokens}, kv_decode_constants(pass.tuning, pass.head_dim, codec.type, codec.rotation_constant()),
            with_signs(params, codec.rotation), work, x, slice.buffer, matrix_or(pass.context, codec));
    }
}

void attention(Pass& pass, const Buffer& y, const Buffer& partials, const Buffer& q, const KvCache& cache, uint32_t layer,
               uint32_t heads, uint32_t kv_heads) {
    const LayerCache& here = cache.layers[layer];
    const KvTypes types = here.types();
    const uint32_t group = heads / kv_heads, splits = split_count(pass.tuning, pass.tokens);
    const AttentionTile tile = attention_tile(pass.tuning, pass.head_dim, types, group, pass.tokens);
    for (const CacheSlice& slice : here.slices) {
        const CacheLayout& at = slice.layout;
        const attention_params params{heads,      slice.first_head, here.capacity,
                                      splits,     at.k_codes,       at.k_scales,
                                      at.v_codes, at.v_scales,      pass.tokens * heads * pass.head_dim};
        const uint64_t kv_heads_here = slice.heads, d = pass.head_dim;
        const uint64_t token_bytes = kv_vector_bytes(types.k, pass.head_dim) + kv_vector_bytes(types.v, pass.head_dim);
        const Work work = per_step(pass.step, [=](const Step& s) { // each token sees half of its own block, on average
            const uint64_t pairs = s.tokens * (s.position + (s.tokens + 1) / 2);
            return Work{(s.position + s.tokens) * kv_heads_here * token_bytes, 4 * pairs * kv_heads_here * group * d};
        });
        const Groups grid{splits, slice.heads * (group / tile.heads), groups(pass.tokens, tile.tokens)};
        const auto constants = attention_constants(pass.tuning, pass.head_dim, types, group, pass.tokens);
        const bool simd = uses_simd(pass, {q, slice.buffer});
        if (simd && is_per_lane(pass.tuning, types))
            pass.recorder.dispatch<shader::attention_per_lane>(
                grid, attention_per_lane_constants(pass.tuning, pass.head_dim, types, group, pass.tokens), params, work, partials,
                q, slice.buffer, pass.context);
        else if (simd)
            pass.recorder.dispatch<shader::attention_simd>(grid, constants, params, work, partials, q, slice.buffer,
                                                           pass.context);
        else if (pass.tuning.subgroup)
            pass.recorder.dispatch<shader::attention_subgroup>(grid, constants, params, work, partials, q, slice.buffer,
                                                               pass.context);
        else
            pass.recorder.dispatch<shader::attention>(grid, constants, params, work, partials, q, slice.buffer, pass.context);
    }
    merge(pass, y, partials, here.v, heads, splits);
}

uint64_t partials_bytes(const Tuning& tuning, uint32_t tokens, uint32_t heads, uint32_t head_dim, bool projected) {
    return uint64_t(std::max(tokens, split_count(tuning, 1))) * heads * ((projected ? 2 : 1) * head_dim + 2) * 4;
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
