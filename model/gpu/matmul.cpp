// Products of a matrix. One vector takes matvec, or, if a device has dot products of int8, matvec_dot, which multiplies levels by
// inputs in two digits. Up to max_columns vectors, if they are separate or on a GPU: the same kernels with several columns; each
// column has the bits that it has alone. Other blocks: matmul up to Tuning::matmul_tokens; longer ones by matmul_coopmat on
// matrix units (fp16 factors, fp32 sums), by matmul_dot in digits, by matmul_tiled in tiles in shared memory, or by matmul, as
// matmul_kernel() chooses. A matrix that exceeds a binding has slices, with a dispatch for each. Experts' products are the same
// dispatches on a stack of matrices, with a pair of a token and an expert in the place of a vector (experts.cpp). A tile depends
// on the device and the matrix alone, so that blocks of one kernel give a token the same bits, whatever their length.
#include "model/gpu/matmul.h"
#include "base/ensure.h"
#include "model/forward.h"
#include "model/gpu/products.h"
#include <algorithm>

namespace tq::gpu {
namespace {

// Returns the work of a product with one vector, or with those of the pass.
Work work_of(const Pass& pass, const Matrix& w, const MatrixSlice& slice, bool one) {
    const uint64_t weight_bytes = slice.buffer.bytes(), cols = w.cols, rows = slice.rows;
    const auto of = [=](uint64_t vectors) { return Work{weight_bytes + vectors * (cols + rows) * 4, 2 * vectors * cols * rows}; };
    return one ? of(1) : per_step(pass.step, [=](const Step& s) { return of(s.tokens); });
}

// The same with each pair's vector. Weights are read once for each pair, or once for each expert that there can be.
Work work_of(const Pass& pass, const Matrix& w, const MatrixSlice& slice, const Pairs& pairs, bool once_for_each_pair) {
    const uint64_t slice_bytes = slice.buffer.bytes(), experts = pairs.experts, used = pairs.used, cols = w.cols,
                   rows = slice.rows;
    return per_step(pass.step, [=](const Step& s) {
        const uint64_t vectors = s.tokens * used, read = once_for_each_pair ? vectors : std::min(vectors, experts),
                       elements = vectors * (cols * experts + rows) / experts; // of x, and of y that the slice has
        return Work{slice_bytes * read / experts + elements * 4, 2 * vectors * cols * rows / experts};
    });
}

Work of_matrix(Work work, const MatrixSlice& slice, const Matrix& w) {
    work.rows = slice.rows;
    work.cols = w.cols;
    return work;
}

// Lanes that share a row, at most: more leave each of them too little to do.
constexpr uint32_t max_lanes = 128, max_lanes_without_subgroups = 32;

// Slices that a product has: of a shortened matrix those with likely ids.
std::span<const MatrixSlice> slices_of(const Pass& pass, const Matrix& w) {
    const auto end = pass.shortened != &w
                         ? w.slices.end()
                         : std::ranges::find_if(w.slices, [](const MatrixSlice& slice) { return slice.first_row >= likely_ids; });
    return {w.slices.begin(), end};
}

// Rows of a matrix that a vector is multiplied by: of a stack of experts those of one.
uint32_t rows_of(const Matrix& w, const Pairs* pairs) { return pairs ? w.rows / pairs->experts : w.rows; }

} // namespace

// A pair has the bits of its token alone, whose lanes depend on the rows of all its experts.
uint32_t record_matvec(Pass& pass, const Matvec& v, const Matrix& w) {
    Recorder& recorder = pass.recorder;
    const Tuning& t = pass.tuning;
    const size_t format = family_member(w.type);
    const bool folds = v.normed || v.output == MATVEC_RESIDUAL;
    const uint32_t rows = rows_of(w, v.pairs), used = v.pairs ? v.pairs->used : 1;
    const View last = v.pairs         ? View(v.pairs->routes)
                      : v.columns > 1 ? View(pass.context)
                                      : v.next_norm.value_or(v.x); // never empty
    const MatvecTile tile = matvec_tile(t, w.type, rows * used, w.cols, v.output, v.columns);
    const shader::matvec_constants constants = matvec_constants(t, tile, v, w);
    uint32_t all_groups = 0;
    for (const MatrixSlice& slice : slices_of(pass, w)) {
        const uint32_t squares = v.squares + (v.output == MATVEC_RESIDUAL ? all_groups : 0);
        const matvec_params params{.cols = w.cols,
                                   .rows = slice.rows,
                                   .first_row = slice.first_row,
                                   .squares = squares,
                                   .square_count = v.square_count,
                                   .eps = v.eps,
                                   .scaled = v.scaled,
                                   .y_cols = w.rows,
                                   .scale_unit = w.scale_unit,
                                   .expert_rows = rows,
                                   .pairs_per_x = v.pairs ? v.pairs->per_x : 1};
        const Work work =
            of_matrix(v.pairs ? work_of(pass, w, slice, *v.pairs, true) : work_of(pass, w, slice, v.columns == 1), slice, w);
        const Groups grid{groups(std::min(slice.rows, rows), tile.rows_per_workgroup()), v.pairs ? pass.tokens * used : 1,
                          v.columns == 1 ? 1 : groups(pass.tokens, v.columns)};
        if (!folds && reads_texels(pass, {slice.buffer, v.x}))
            recorder.dispatch<shader::matvec_texel>(format, grid, constants, params, work, v.y, slice.buffer, v.x, last);
        else if (multiplies_digits(t, w.type))
            recorder.dispatch<shader::matvec_dot>(format, grid, matvec_dot_constants(t, tile, v, w), params, work, v.y,
                                                  slice.buffer, v.x, last);
        else if (tile.lanes > 1 && t.subgroup != 0)
            recorder.dispatch<shader::matvec_subgroup>(format, grid, constants, params, work, v.y, slice.buffer, v.x, last);
        else
            recorder.dispatch<shader::matvec>(format, grid, constants, params, work, v.y, slice.buffer, v.x, last);
        all_groups += grid.x;
    }
    return all_groups;
}

bool multiplies_digits(const Tuning& t, GgmlType type) {
    return t.matvec_dot != 0 && shader::matvec_dot.members[family_member(type)] != nullptr;
}

namespace {

// A workgroup of matvec_dot has eight groups of lanes, each with half as many rows as matvec has: the code is shorter. If a
// matrix has too few rows to busy all cores, each group has fewer.
MatvecTile dot_tile(const Tuning& t, uint32_t rows, uint32_t output) {
    const uint32_t cores = t.matvec_loads / 1024, min = output == MATVEC_GATED ? 2 : 1;
    MatvecTile tile{t.matvec_dot, t.matvec_dot / 8, std::max(t.matvec_rows / 2, 1u)};
    while (tile.rows > min && rows / (8 * tile.rows) * 4 < cores * 3) tile.rows /= 2;
    tile.rows = (tile.rows + min - 1) / min * min;
    return tile;
}

} // namespace

MatvecTile matvec_tile(const Tuning& t, GgmlType type, uint32_t rows, uint32_t cols, uint32_t output, uint32_t columns) {
    if (multiplies_digits(t, type)) return dot_tile(t, rows, output);
    MatvecTile tile{t.workgroup, t.matvec_lanes, t.matvec_rows};
    const uint32_t max = std::min(t.subgroup != 0 ? max_lanes : max_lanes_without_subgroups, cols / 32);
    // Decoded weights stay in registers for all vectors. CPU drivers keep them on the stack, and more rows share what takes them
    // longest, fetching x.
    if (columns > 1 && t.matvec_lanes > 1) tile.rows = std::min(tile.rows, 2u);
    if (output == MATVEC_GATED) tile.rows = (tile.rows + 1) / 2 * 2;
    while (tile.lanes > 1 && 2 * tile.lanes <= max && uint64_t(rows) * tile.lanes < t.matvec_loads) tile.lanes *= 2;
    tile.workgroup = std::max(tile.workgroup, tile.lanes);
    return tile;
}

// shaders/grids.glsl
uint32_t table_bytes(GgmlType type) {
    switch (type) {
    case GgmlType::IQ1_S:
    case GgmlType::IQ1_M: return 2048 * 2;
    case GgmlType::IQ2_XXS: return 256 * 8;
    case GgmlType::IQ2_XS: return 512 * 8;
    case GgmlType::IQ2_S: return 1024 * 4;
    case GgmlType::IQ3_XXS: return 256 * 4;
    case GgmlType::IQ3_S: return 512 * 4;
    default: return level_table_bytes;
    }
}

MatmulTile matmul_tiled_tile(const Tuning& t, bool experts, uint32_t tables) {
    // Tiles for workgroups of 128, the maximum that every device supports. The least is for grids.
    constexpr MatmulTile tiles[] = {{128, 64, 8, 8}, {64, 64, 8, 4}, {128, 32, 8, 4}, {64, 32, 4, 4}, {32, 32, 4, 2}};
    for (const MatmulTile& tile : tiles) {
        if (experts && tile.tokens != expert_tokens) continue;
        static_assert(std::ranges::all_of(tiles, [](const MatmulTile& each) { return each.workgroup() == 128; }));
        if ((tile.rows + tile.tokens) * 9 * 16 + tables <= t.shared_bytes)
            return tile; // 36 floats a row: shaders/matmul_tiled.comp
    }
    ENSURE(false, "{} bytes of shared memory", t.shared_bytes);
}

DotTile matmul_dot_tile(const Tuning& t, bool experts, uint32_t tables) {
    for (const MatmulTile& tile : {MatmulTile{128, 64, 4, 8}, {64, 64, 4, 8}, {128, 32, 4, 8}}) {
        if (tile.workgroup() > t.max_workgroup || (experts && tile.tokens != expert_tokens)) continue;
        for (const uint32_t blocks : {2u, 1u}) {
            const uint32_t vectors = tile.rows * 3 + tile.tokens * 5; // shaders/matmul_dot.comp
            if (vectors * blocks * 16 + tables <= t.shared_bytes) return {tile, blocks};
        }
    }
    ENSURE(false, "{} bytes of shared memory, workgroups of {}", t.shared_bytes, t.max_workgroup);
}

#if TQ_COOPERATIVE_MATRIX
namespace {

// Divides a tile among subgroups until a workgroup has four of them: in subgroups of 32 each invocation has 64 sums in registers
// then. In smaller ones (Intel), until it has 256 invocations with 32 sums each.
void divide(CoopmatTile& tile, const Tuning& t) {
    const uint32_t target =
        std::min(std::max((t.matrix_subgroup < 32 ? 256 : 128) / t.matrix_subgroup, 4u), t.max_workgroup / t.matrix_subgroup);
    const auto halves = [](uint32_t& parts, uint32_t length, uint32_t side) {
        if (length / (2 * parts) % side != 0) return false;
        parts *= 2;
        return true;
    };
    while (tile.subgroups() < target) {
        const bool rows_first = tile.row_subgroups <= tile.token_subgroups;
        if (rows_first && halves(tile.row_subgroups, tile.rows, t.matrix.m)) continue;
        if (halves(tile.token_subgroups, tile.tokens, t.matrix.n)) continue;
        if (!halves(tile.row_subgroups, tile.rows, t.matrix.m)) break;
    }
}

} // namespace

CoopmatTile coopmat_tile(const Tuning& t, bool experts, uint32_t tables) {
    constexpr CoopmatTile tiles[] = {{128, 64}, {64, 64}, {32, 32}};
    constexpr CoopmatTile of_experts[] = {{128, expert_tokens}, {64, expert_tokens}, {32, expert_tokens}};
    for (CoopmatTile tile : experts ? of_experts : tiles) {
        divide(tile, t);
        if (tile.rows * tile.tokens > MAX_MATRICES * t.matrix.m * t.matrix.n * tile.subgroups()) continue;
        for (tile.blocks = t.matmul_blocks; tile.blocks > 0; tile.blocks--)
            for (tile.ahead = t.matmul_ahead;; tile.ahead--) {
                // shaders/matmul_coopmat.comp: halves of a row or token, a matrix of sums for each subgroup
                const uint32_t row = (64 * tile.blocks + 16) * (tile.ahead == 2 ? 2 : 1),
                               sums = tile.subgroups() * t.matrix.m * t.matrix.n * 4;
                if ((tile.rows + tile.tokens) * row + sums + tables <= t.shared_bytes) return tile;
                if (tile.ahead < 2) break;
            }
    }
    ENSURE(false, "{} bytes of shared memory", t.shared_bytes);
}
#endif

void matvec(Pass& pass, View y, const Matrix& w, View x, bool accumulate) {
    record_matvec(pass, {.y = y, .x = x, .output = accumulate ? MATVEC_ADD : MATVEC_STORE}, w);
}

void matvec_gated(Pass& pass, View y, const Matrix& w, View x) {
    record_matvec(pass, {.y = y, .x = x, .output = MATVEC_GATED}, w);
}

void matvec_normed(Pass& pass, View y, const Matrix& w, const Normed& x, float eps, uint32_t output) {
    record_matvec(
        pass,
        {.y = y, .x = x.x, .output = output, .normed = true, .squares = x.squares, .square_count = x.square_count, .eps = eps},
        w);
}

// After h: the products [rows], then the sums, each aligned to 64 floats.
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

MatmulKernel matmul_kernel(const Tuning& tuning, GgmlType type, uint32_t tokens, bool separate) {
    ENSURE(!separate || tokens <= max_columns, "{} rows", tokens);
    // If one lane multiplies a row (processors), matmul is faster for a few tokens.
    if (separate || (tuning.matvec_lanes > 1 && tokens <= std::min(tuning.matmul_tokens, max_columns)))
        return MatmulKernel::matvec;
    if (tokens <= tuning.matmul_tokens) return MatmulKernel::plain;
    if (tuning.matmul_coopmat && type != GgmlType::F32) return MatmulKernel::coopmat;
    if (tuning.matmul_dot && shader::matmul_dot.members[family_member(type)] != nullptr) return MatmulKernel::dot;
    return tuning.matmul_tiled ? MatmulKernel::tiled : MatmulKernel::plain;
}

uint64_t rounded_bytes(const Tuning& tuning, uint32_t tokens, uint32_t cols) {
    if (tuning.matmul_coopmat) return uint64_t(tokens) * (2 * cols + 4);
    return tuning.matmul_dot ? uint64_t(tokens) * (cols / 32) * 80 : 16;
}

void inputs_to_fp16(Pass& pass, const Buffer& rounded, const Buffer& x, uint32_t cols, uint32_t rows_per_token) {
    const Work work = per_step(pass.step, [=](const Step& s) {
        const uint64_t elements = uint64_t(s.tokens) * rows_per_token * cols;
        return Work{elements * 6, elements * 2};
    });
    const uint32_t rows = pass.tokens * rows_per_token;
    pass.recorder.dispatch<shader::inputs_to_fp16>({rows}, {pass.tuning.workgroup}, {cols, rows_per_token, rows * cols / 2}, work,
                                                   rounded, x, pass.context);
}

void inputs_to_int8(Pass& pass, const Buffer& digits, const Buffer& x, uint32_t cols, uint32_t rows_per_token) {
    const Work work = per_step(pass.step, [=](const Step& s) {
        const uint64_t blocks = uint64_t(s.tokens) * rows_per_token * (cols / 32);
        return Work{blocks * (128 + 80), blocks * 32 * 4};
    });
    pass.recorder.dispatch<shader::inputs_to_int8>({pass.tokens * rows_per_token}, {pass.tuning.workgroup},
                                                   {cols, rows_per_token}, work, digits, x, pass.context);
}

namespace {

// A dispatch of a product with a block: of one slice.
struct SliceProduct {
    const BlockProduct& product;
    const MatrixSlice& slice;
    uint32_t rows; // that a vector is multiplied by, at most
    matmul_params params;
    Work work;
    const Buffer& last; // the context, or the routes of experts

    SliceProduct(const Pass& pass, const BlockProduct& p, const MatrixSlice& slice)
        : product(p), slice(slice), rows(std::min(slice.rows, rows_of(p.w, p.pairs))), params(params_of(p, slice)),
          work(of_matrix(p.pairs ? work_of(pass, p.w, slice, *p.pairs, false) : work_of(pass, p.w, slice, false), slice, p.w)),
          last(p.pairs ? p.pairs->routes : pass.context) {}

    static matmul_params params_of(const BlockProduct& p, const MatrixSlice& slice) {
        const uint32_t rows = rows_of(p.w, p.pairs);
        return {.cols = p.w.cols,
                .rows = slice.rows,
                .first_row = slice.first_row,
                .y_cols = rows,
                .scale_unit = p.w.scale_unit,
                .expert_rows = rows,
                .pairs_per_x = p.pairs ? p.pairs->per_x : 1,
                .tiles_at = p.pairs ? p.pairs->tiles_at : 0};
    }
    Groups grid(const Pass& pass, uint32_t tile_rows, uint32_t tile_tokens) const {
        return {groups(rows, tile_rows), product.pairs ? product.pairs->max_tiles : groups(pass.tokens, tile_tokens)};
    }
};

void record_tiled(Pass& pass, const SliceProduct& s) {
    const auto& [kernel, y, w, x, accumulate, pairs] = s.product;
    const MatmulTile tile = matmul_tiled_tile(pass.tuning, pairs != nullptr, table_bytes(w.type));
    pass.recorder.dispatch<shader::matmul_tiled>(
        family_member(w.type), s.grid(pass, tile.rows, tile.tokens),
        matmul_tiled_constants(pass.tuning, w.interleave, accumulate, pairs != nullptr, table_bytes(w.type)), s.params, s.work, y,
        s.slice.buffer, x.x, s.last);
}

void record_dot(Pass& pass, const SliceProduct& s) {
    const auto& [kernel, y, w, x, accumulate, pairs] = s.product;
    const DotTile tile = matmul_dot_tile(pass.tuning, pairs != nullptr, table_bytes(w.type));
    pass.recorder.dispatch<shader::matmul_dot>(
        family_member(w.type), s.grid(pass, tile.rows, tile.tokens),
        matmul_dot_constants(pass.tuning, w.interleave, accumulate, pairs != nullptr, table_bytes(w.type)), s.params, s.work, y,
        s.slice.buffer, x.rounded, s.last);
}

#if TQ_COOPERATIVE_MATRIX
void record_coopmat(Pass& pass, const SliceProduct& s) {
    const auto& [kernel, y, w, x, accumulate, pairs] = s.product;
    const CoopmatTile tile = coopmat_tile(pass.tuning, pairs != nullptr, table_bytes(w.type));
    const matmul_params& p = s.params;
    const uint32_t largest = pass.tokens * x.rows_per_token * w.cols / 2; // as inputs_to_fp16 was told
    const matmul_coopmat_params params{.cols = p.cols,
                                       .rows = p.rows,
                                       .first_row = p.first_row,
                                       .y_cols = p.y_cols,
                                       .scale_unit = p.scale_unit,
                                       .expert_rows = p.expert_rows,
                                       .pairs_per_x = p.pairs_per_x,
                                       .tiles_at = p.tiles_at,
                                       .largest = largest};
    pass.recorder.dispatch<shader::matmul_coopmat>(
        family_member(w.type), s.grid(pass, tile.rows, tile.tokens),
        matmul_coopmat_constants(pass.tuning, w.interleave, accumulate, pairs != nullptr, table_bytes(w.type)), params, s.work, y,
        s.slice.buffer, x.rounded, s.last);
}
#endif

void record_plain(Pass& pass, const SliceProduct& s) {
    const auto& [kernel, y, w, x, accumulate, pairs] = s.product;
    const Tuning& t = pass.tuning;
    const Groups grid = s.grid(pass, t.workgroup * t.matmul_rows, t.matmul_tokens);
    const auto constants = matmul_constants(t, w.interleave, accumulate, pairs != nullptr);
    const size_t format = family_member(w.type);
    if (reads_texels(pass, {s.slice.buffer, x.x}))
        pass.recorder.dispatch<shader::matmul_texel>(format, grid, constants, s.params, s.work, y, s.slice.buffer, x.x, s.last);
    else
        pass.recorder.dispatch<shader::matmul>(format, grid, constants, s.params, s.work, y, s.slice.buffer, x.x, s.last);
}

void convert(Pass& pass, MatmulKernel kernel, Inputs& x, uint32_t cols) {
    if (x.converted || (kernel != MatmulKernel::dot && kernel != MatmulKernel::coopmat)) return;
    (kernel == MatmulKernel::dot ? inputs_to_int8 : inputs_to_fp16)(pass, x.rounded, x.x, cols, x.rows_per_token);
    x.converted = true;
}

} // namespace

void record_block(Pass& pass, const BlockProduct& product) {
    convert(pass, product.kernel, product.x, product.w.cols);
    for (const MatrixSlice& slice : slices_of(pass, product.w)) {
        const SliceProduct one(pass, product, slice);
        switch (product.kernel) {
        case MatmulKernel::tiled: record_tiled(pass, one); break;
        case MatmulKernel::dot: record_dot(pass, one); break;
#if TQ_COOPERATIVE_MATRIX
        case MatmulKernel::coopmat: record_coopmat(pass, one); break;
#endif
        default: record_plain(pass, one);
        }
    }
}

void matmul_narrow(Pass& pass, View y, const Matrix& w, Inputs& inputs) {
    if (pass.tuning.matvec_lanes == 1 || pass.kernel_rows() <= max_columns) return matmul(pass, y, w, inputs);
    record_matvec(
        pass, {.y = y, .x = inputs.x, .output = MATVEC_STORE, .columns = std::min(max_columns, pass.tuning.matmul_tokens)}, w);
}

void matmul(Pass& pass, View y, const Matrix& w, Inputs& inputs, bool accumulate) {
    if (pass.kernel_rows() == 1) return matvec(pass, y, w, inputs.x, accumulate);
    const MatmulKernel kernel = matmul_kernel(pass.tuning, w.type, pass.kernel_rows(), pass.rows_are_separate());
    if (kernel == MatmulKernel::matvec)
        record_matvec(
            pass, {.y = y, .x = inputs.x, .output = accumulate ? MATVEC_ADD : MATVEC_STORE, .columns = pass.kernel_rows()}, w);
    else
        record_block(pass, {kernel, y, w, inputs, accumulate});
}

} // namespace tq::gpu
