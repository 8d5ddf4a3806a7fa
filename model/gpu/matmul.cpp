#include "model/gpu/matmul.h"
#include "base/ensure.h"
#include <algorithm>

namespace tq::gpu {
namespace {

// The product of a matrix with one vector, or with pass.tokens of them.
struct Matvec {
    View y, x;
    std::optional<View> next_norm = {};
    uint32_t output, columns = 1;
    bool normed = false;
    uint32_t squares = 0, square_count = 0; // as in matvec_params
    float eps = 0;
    uint32_t scaled = 0;
};

// Returns the work of a product with one vector, or with those of the pass.
Work work_of(const Pass& pass, const Matrix& w, const MatrixSlice& slice, bool one) {
    const uint64_t weight_bytes = slice.buffer.bytes(), cols = w.cols, rows = slice.rows;
    const auto of = [=](uint64_t vectors) { return Work{weight_bytes + vectors * (cols + rows) * 4, 2 * vectors * cols * rows}; };
    return one ? of(1) : per_step(pass.step, [=](const Step& s) { return of(s.tokens); });
}

// Returns its number of workgroups.
uint32_t record_matvec(Pass& pass, const Matvec& v, const Matrix& w) {
    Recorder& recorder = pass.recorder;
    const Tuning& t = pass.tuning;
    const size_t format = family_member(w.type);
    const bool folds = v.normed || v.output == MATVEC_RESIDUAL;
    const View& last = v.next_norm ? *v.next_norm : v.x; // a binding must not be empty
    const MatvecTile tile = matvec_tile(t, w.rows, w.cols, v.output, v.columns);
    const ConstantsOf<shader::matvec> constants{tile.workgroup, tile.lanes,      tile.rows,  v.output, w.interleave,
                                                v.normed,       t.matvec_blocks, t.subgroup, v.columns};
    uint32_t all_groups = 0;
    for (const MatrixSlice& slice : w.slices) {
        const uint32_t squares = v.squares + (v.output == MATVEC_RESIDUAL ? all_groups : 0);
        const matvec_params params{w.cols, slice.rows, slice.first_row, squares,     v.square_count,
                                   v.eps,  v.scaled,   w.rows,          w.scale_unit};
        const Work work = work_of(pass, w, slice, v.columns == 1);
        const Groups grid{groups(slice.rows, tile.rows_per_workgroup())};
        if (!folds && reads_texels(pass, {slice.buffer, v.x}))
            recorder.dispatch<shader::matvec_texel>(format, grid, constants, params, work, v.y, slice.buffer, v.x);
        else if (tile.lanes > 1 && t.subgroup != 0)
            recorder.dispatch<shader::matvec_subgroup>(format, grid, constants, params, work, v.y, slice.buffer, v.x, last);
        else
            recorder.dispatch<shader::matvec>(format, grid, constants, params, work, v.y, slice.buffer, v.x, last);
        all_groups += grid.x;
    }
    return all_groups;
}

// Lanes that share a row, at most: more leave each of them too little to do.
constexpr uint32_t max_lanes = 128, max_lanes_without_subgroups = 32;

} // namespace

MatvecTile matvec_tile(const Tuning& t, uint32_t rows, uint32_t cols, uint32_t output, uint32_t columns) {
    MatvecTile tile{t.workgroup, t.matvec_lanes, t.matvec_rows};
    const uint32_t most = std::min(t.subgroup != 0 ? max_lanes : max_lanes_without_subgroups, cols / 32);
    // Decoded weights stay in registers for all vectors. CPU drivers keep them on the stack, and more rows share what takes them
    // longest, fetching x.
    if (columns > 1 && t.matvec_lanes > 1) tile.rows = std::min(tile.rows, 2u);
    if (output == MATVEC_GATED) tile.rows = (tile.rows + 1) / 2 * 2;
    while (tile.lanes > 1 && 2 * tile.lanes <= most && uint64_t(rows) * tile.lanes < t.matvec_loads) tile.lanes *= 2;
    tile.workgroup = std::max(tile.workgroup, tile.lanes);
    return tile;
}

MatmulTile matmul_tiled_tile(const Tuning& t) {
    // Tiles for workgroups of 128, the maximum that every device supports.
    constexpr MatmulTile tiles[] = {{128, 64, 8, 8}, {64, 64, 8, 4}, {64, 32, 4, 4}};
    for (const MatmulTile& tile : tiles) {
        static_assert(std::ranges::all_of(tiles, [](const MatmulTile& each) { return each.workgroup() == 128; }));
        const uint32_t levels = 64; // of a format with a table of levels
        if ((tile.rows + tile.tokens) * 9 * 16 + levels <= t.shared_bytes)
            return tile; // 36 floats a row: shaders/matmul_tiled.comp
    }
    ENSURE(false, "{} bytes of shared memory", t.shared_bytes);
}

DotTile matmul_dot_tile(const Tuning& t) {
    for (const MatmulTile& tile : {MatmulTile{128, 64, 4, 8}, {64, 64, 4, 8}}) {
        if (tile.workgroup() > t.max_workgroup) continue;
        for (const uint32_t blocks : {2u, 1u}) {
            const uint32_t levels = 64; // of a format with a table of levels; vectors: shaders/matmul_dot.comp
            if ((tile.rows * 3 + tile.tokens * 5) * blocks * 16 + levels <= t.shared_bytes) return {tile, blocks};
        }
    }
    ENSURE(false, "{} bytes of shared memory, workgroups of {}", t.shared_bytes, t.max_workgroup);
}

#if TQ_COOPERATIVE_MATRIX
namespace {

// Divides a tile among subgroups until a workgroup has four of them: in subgroups of 32 each invocation has 64 sums in registers
// then. In smaller ones (Intel), until it has 256 invocations with 32 sums each.
void divide(CoopmatTile& tile, const Tuning& t) {
    const uint32_t wanted =
        std::min(std::max((t.matrix_subgroup < 32 ? 256 : 128) / t.matrix_subgroup, 4u), t.max_workgroup / t.matrix_subgroup);
    const auto halves = [](uint32_t& parts, uint32_t length, uint32_t side) {
        if (length / (2 * parts) % side != 0) return false;
        parts *= 2;
        return true;
    };
    while (tile.subgroups() < wanted) {
        const bool rows_first = tile.row_subgroups <= tile.token_subgroups;
        if (rows_first && halves(tile.row_subgroups, tile.rows, t.matrix.m)) continue;
        if (halves(tile.token_subgroups, tile.tokens, t.matrix.n)) continue;
        if (!halves(tile.row_subgroups, tile.rows, t.matrix.m)) break;
    }
}

} // namespace

CoopmatTile coopmat_tile(const Tuning& t) {
    for (CoopmatTile tile : {CoopmatTile{128, 64}, {64, 64}, {32, 32}}) {
        divide(tile, t);
        for (tile.blocks = t.matmul_blocks; tile.blocks > 0; tile.blocks--) {
            // shaders/matmul_coopmat.comp: halves of a row or token, a matrix of sums for each subgroup, a format's levels
            const uint32_t row = 64 * tile.blocks + 16, sums = tile.subgroups() * t.matrix.m * t.matrix.n * 4, levels = 64;
            if ((tile.rows + tile.tokens) * row + sums + levels <= t.shared_bytes) return tile;
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
    // Where one lane multiplies a row (processors), matmul is the faster one for a few tokens.
    if (separate || (tuning.matvec_lanes > 1 && tokens <= std::min(tuning.matmul_tokens, max_columns)))
        return MatmulKernel::matvec;
    if (tokens <= tuning.matmul_tokens) return MatmulKernel::plain;
    if (tuning.matmul_coopmat && type != GgmlType::F32) return MatmulKernel::coopmat;
    if (tuning.matmul_dot && shader::matmul_dot.members[family_member(type)] != nullptr) return MatmulKernel::dot;
    return tuning.matmul_tiled ? MatmulKernel::tiled : MatmulKernel::plain;
}

uint64_t halves_bytes(const Tuning& tuning, uint32_t tokens, uint32_t cols) {
    if (tuning.matmul_coopmat) return uint64_t(tokens) * (2 * cols + 4);
    return tuning.matmul_dot ? uint64_t(tokens) * (cols / 32) * 80 : 16;
}

namespace {

// The offset of the largest magnitudes in Inputs::halves, in words.
uint32_t largest_offset(const Pass& pass, uint32_t cols) { return pass.tokens * cols / 2; }

} // namespace

void inputs_to_fp16(Pass& pass, const Buffer& halves, const Buffer& x, uint32_t cols) {
    const Work work = per_step(pass.step, [=](const Step& s) {
        const uint64_t elements = uint64_t(s.tokens) * cols;
        return Work{elements * 6, elements * 2};
    });
    pass.recorder.dispatch<shader::inputs_to_fp16>({pass.tokens}, {pass.tuning.workgroup}, {cols, largest_offset(pass, cols)},
                                                   work, halves, x, pass.context);
}

void inputs_to_int8(Pass& pass, const Buffer& digits, const Buffer& x, uint32_t cols) {
    const Work work = per_step(pass.step, [=](const Step& s) {
        const uint64_t blocks = uint64_t(s.tokens) * (cols / 32);
        return Work{blocks * (128 + 80), blocks * 32 * 4};
    });
    pass.recorder.dispatch<shader::inputs_to_int8>({pass.tokens}, {pass.tuning.workgroup}, {cols}, work, digits, x, pass.context);
}

namespace {

void matmul_dot(Pass& pass, View y, const Matrix& w, Inputs& x, bool accumulate) {
    if (!x.converted) inputs_to_int8(pass, x.halves, x.x, w.cols);
    x.converted = true;
    const DotTile tile = matmul_dot_tile(pass.tuning);
    for (const MatrixSlice& slice : w.slices) {
        const matmul_params params{w.cols, slice.rows, slice.first_row, w.rows, w.scale_unit};
        const Groups grid{groups(slice.rows, tile.rows), groups(pass.tokens, tile.tokens)};
        pass.recorder.dispatch<shader::matmul_dot>(family_member(w.type), grid,
                                                   matmul_dot_constants(pass.tuning, w.interleave, accumulate), params,
                                                   work_of(pass, w, slice, false), y, slice.buffer, x.halves, pass.context);
    }
}

} // namespace

#if TQ_COOPERATIVE_MATRIX
namespace {

void matmul_coopmat(Pass& pass, View y, const Matrix& w, Inputs& x, bool accumulate) {
    const uint32_t largest = largest_offset(pass, w.cols);
    if (!x.converted) inputs_to_fp16(pass, x.halves, x.x, w.cols);
    x.converted = true;
    const CoopmatTile tile = coopmat_tile(pass.tuning);
    for (const MatrixSlice& slice : w.slices) {
        const matmul_coopmat_params params{w.cols, slice.rows, slice.first_row, w.rows, w.scale_unit, largest};
        const Groups grid{groups(slice.rows, tile.rows), groups(pass.tokens, tile.tokens)};
        pass.recorder.dispatch<shader::matmul_coopmat>(family_member(w.type), grid,
                                                       matmul_coopmat_constants(pass.tuning, w.interleave, accumulate), params,
                                                       work_of(pass, w, slice, false), y, slice.buffer, x.halves, pass.context);
    }
}

} // namespace
#endif

void matmul(Pass& pass, View y, const Matrix& w, Inputs& inputs, bool accumulate) {
    const Buffer& x = inputs.x;
    if (pass.tokens == 1) return matvec(pass, y, w, x, accumulate);
    Recorder& recorder = pass.recorder;
    const size_t format = family_member(w.type);
    const MatmulKernel kernel = matmul_kernel(pass.tuning, w.type, pass.tokens, pass.rows_are_separate());
    if (kernel == MatmulKernel::matvec) {
        record_matvec(pass, {.y = y, .x = x, .output = accumulate ? MATVEC_ADD : MATVEC_STORE, .columns = pass.tokens}, w);
        return;
    }
    if (kernel == MatmulKernel::dot) return matmul_dot(pass, y, w, inputs, accumulate);
#if TQ_COOPERATIVE_MATRIX
    if (kernel == MatmulKernel::coopmat) return matmul_coopmat(pass, y, w, inputs, accumulate);
#endif
    for (const MatrixSlice& slice : w.slices) {
        const matmul_params params{w.cols, slice.rows, slice.first_row, w.rows, w.scale_unit};
        const Work work = work_of(pass, w, slice, false);
        if (kernel == MatmulKernel::tiled) {
            const MatmulTile tile = matmul_tiled_tile(pass.tuning);
            const Groups grid{groups(slice.rows, tile.rows), groups(pass.tokens, tile.tokens)};
            recorder.dispatch<shader::matmul_tiled>(format, grid, matmul_tiled_constants(pass.tuning, w.interleave, accumulate),
                                                    params, work, y, slice.buffer, x, pass.context);
            continue;
        }
        const Groups grid{groups(slice.rows, pass.tuning.workgroup * pass.tuning.matmul_rows),
                          groups(pass.tokens, pass.tuning.matmul_tokens)};
        const auto constants = matmul_constants(pass.tuning, w.interleave, accumulate);
        if (reads_texels(pass, {slice.buffer, x}))
            recorder.dispatch<shader::matmul_texel>(format, grid, constants, params, work, y, slice.buffer, x, pass.context);
        else
            recorder.dispatch<shader::matmul>(format, grid, constants, params, work, y, slice.buffer, x, pass.context);
    }
}

} // namespace tq::gpu
