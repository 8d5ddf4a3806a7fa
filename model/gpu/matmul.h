// Products of a weight matrix with one vector (matvec) and with a block of them (matmul).
#pragma once
#include "model/gpu/pass.h"
#include "model/gpu/weights.h"
#include "shaders.gen.h"
#include "shaders/matvec_outputs.h"

namespace tq::gpu {

// The kernel for a block of more than one token: matmul, matmul_tiled, matmul_dot, matmul_coopmat; or matvec for several vectors.
enum class MatmulKernel { plain, tiled, dot, coopmat, matvec };
// Vectors that matvec multiplies a matrix by, at most: their sums stay in registers. Each result has the bits that it has of
// its vector alone.
inline constexpr uint32_t max_columns = 8;
// `separate`: Pass::rows_are_separate(), for at most max_columns rows.
MatmulKernel matmul_kernel(const Tuning&, GgmlType, uint32_t tokens, bool separate = false);

// The inputs of products with a block, [tokens][cols]. x: fp32. rounded: room of rounded_bytes() for them in fp16 or in digits;
// the first product whose kernel takes these fills it.
struct Inputs {
    const Buffer &x, &rounded;
    bool converted = false;
    uint32_t rows_per_token = 1; // rows of x per token; more than 1 if each of a token's experts has its own
};
// Not 0 even if no kernel takes them, since buffers cannot be empty.
uint64_t rounded_bytes(const Tuning&, uint32_t tokens, uint32_t cols);
// rounded: x as fp16 numbers [tokens][cols], each token's times a power of two that brings its largest magnitude into [2^14,
// 2^15); then the fp32 bits of these magnitudes [tokens], for pass.tokens tokens. If a token has several rows, each is converted
// as a token is. The same holds for inputs_to_int8().
void inputs_to_fp16(Pass&, const Buffer& rounded, const Buffer& x, uint32_t cols, uint32_t rows_per_token = 1);

// digits: x [tokens][cols] as scale * (128 high + low), a scale for 32 columns, which are five vectors: 32 high digits of int8,
// 32 low ones, and the fp32 scale and the sums of the first and the last 16 columns.
void inputs_to_int8(Pass&, const Buffer& digits, const Buffer& x, uint32_t cols, uint32_t rows_per_token = 1);

// y[t] = w x[t], or y[t] += w x[t] when `accumulate`. x: [tokens][w.cols], y: [tokens][w.rows], both with rows padded to the
// next multiple of tuning.matmul_tokens. One token, or separate ones: matvec.
void matmul(Pass&, View y, const Matrix& w, Inputs& x, bool accumulate = false);

// y[t] = w x[t] of a matrix with so few rows that a tile of all of them would leave most cores of a GPU idle: by matvec, up to
// max_columns tokens at a time.
void matmul_narrow(Pass&, View y, const Matrix& w, Inputs& x);

// y = w x of one vector, whatever pass.tokens is; or y += w x; or, for a matrix whose rows 2 i and 2 i + 1 are pairs, y[i] =
// silu((w x)[2 i]) * (w x)[2 i + 1].
void matvec(Pass&, View y, const Matrix& w, View x, bool accumulate = false);
void matvec_gated(Pass&, View y, const Matrix& w, View x);

// RMS norm without a kernel of its own, for one token (tuning.fold_norms). The vector h is followed by its products with the
// norm's weights, and by sums of its squares: matvec_residual leaves both after `h`, from float `h_floats` on, and
// matvec_normed divides its results by the rms. Equal to rms_norm and matvec but for rounding.
struct Normed {
    View x;                         // the products; from float `squares` on: the sums
    uint32_t squares, square_count; // offset, a multiple of 4, and number of the sums
};
// h += w x. next_norm: [w.rows]. h: h_floats floats, then normed_floats(w.rows). h_floats: a multiple of 64.
Normed matvec_residual(Pass&, const Buffer& h, uint32_t h_floats, const Matrix& w, const Buffer& x, const Buffer& next_norm);
// output: MATVEC_STORE, MATVEC_ADD or MATVEC_GATED
void matvec_normed(Pass&, View y, const Matrix& w, const Normed& x, float eps, uint32_t output = MATVEC_STORE);
uint64_t normed_floats(uint32_t rows);

// The tiles of the kernels, and their specialisation constants. `experts`: of products of experts (experts.h), whose tiles are
// those of plain, or have expert_tokens tokens.
inline constexpr uint32_t expert_tokens = 32;

struct MatvecTile {
    uint32_t workgroup, lanes, rows; // rows: of a group of `lanes` invocations
    uint32_t rows_per_workgroup() const { return workgroup / lanes * rows; }
};
// Whether matvec_dot multiplies vectors by matrices of this type.
bool multiplies_digits(const Tuning& t, GgmlType type);
// The tile for a matrix of `type`, rows x cols, and `columns` vectors. `output`: one of shaders/matvec_outputs.h.
MatvecTile matvec_tile(const Tuning& t, GgmlType type, uint32_t rows, uint32_t cols, uint32_t output, uint32_t columns);

inline shader::matmul_constants matmul_constants(const Tuning& t, uint32_t interleave, bool accumulate, bool experts = false) {
    return {.workgroup = t.workgroup,
            .tile = t.matmul_tokens,
            .rows = t.matmul_rows,
            .accumulate = accumulate,
            .interleave = interleave,
            .experts = experts};
}

// Returns the shared memory of a format's table: the entries of its grid, or 16 levels, which is the minimum.
inline constexpr uint32_t level_table_bytes = 64;
uint32_t table_bytes(GgmlType type);

// The tile of a workgroup of matmul_tiled, and of each of its invocations: the largest that fits into shared memory.
struct MatmulTile {
    uint32_t rows, tokens, invocation_rows, invocation_tokens;

    constexpr uint32_t workgroup() const { return rows / invocation_rows * (tokens / invocation_tokens); }
};
MatmulTile matmul_tiled_tile(const Tuning& t, bool experts = false, uint32_t tables = level_table_bytes);

inline shader::matmul_tiled_constants matmul_tiled_constants(const Tuning& t, uint32_t interleave, bool accumulate,
                                                             bool experts = false, uint32_t tables = level_table_bytes) {
    const MatmulTile tile = matmul_tiled_tile(t, experts, tables);
    return {.workgroup = tile.workgroup(),
            .tile_rows = tile.rows,
            .tile_tokens = tile.tokens,
            .rows = tile.invocation_rows,
            .columns = tile.invocation_tokens,
            .accumulate = accumulate,
            .interleave = interleave,
            .experts = experts};
}

// The tile of matmul_dot. blocks: 32-column blocks that it multiplies at a time.
struct DotTile : MatmulTile {
    uint32_t blocks = 1;
};
DotTile matmul_dot_tile(const Tuning& t, bool experts = false, uint32_t tables = level_table_bytes);

inline shader::matmul_dot_constants matmul_dot_constants(const Tuning& t, uint32_t interleave, bool accumulate,
                                                         bool experts = false, uint32_t tables = level_table_bytes) {
    const DotTile tile = matmul_dot_tile(t, experts, tables);
    return {.workgroup = tile.workgroup(),
            .tile_rows = tile.rows,
            .tile_tokens = tile.tokens,
            .rows = tile.invocation_rows,
            .columns = tile.invocation_tokens,
            .blocks = tile.blocks,
            .accumulate = accumulate,
            .interleave = interleave,
            .experts = experts};
}

#if TQ_COOPERATIVE_MATRIX
// The tile of a workgroup of matmul_coopmat, the largest that fits into shared memory; the columns that it takes at a time, times
// 32; how its subgroups share it, as row_subgroups x token_subgroups; and Tuning::matmul_ahead, or 1 if two of it do not fit.
struct CoopmatTile {
    uint32_t rows, tokens, blocks = 1, row_subgroups = 1, token_subgroups = 1, ahead = 0;

    uint32_t subgroups() const { return row_subgroups * token_subgroups; }
};
CoopmatTile coopmat_tile(const Tuning& t, bool experts = false, uint32_t tables = level_table_bytes);

inline shader::matmul_coopmat_constants matmul_coopmat_constants(const Tuning& t, uint32_t interleave, bool accumulate,
                                                                 bool experts = false, uint32_t tables = level_table_bytes) {
    const CoopmatTile tile = coopmat_tile(t, experts, tables);
    return {.workgroup = tile.subgroups() * t.matrix_subgroup,
            .tile_rows = tile.rows,
            .tile_tokens = tile.tokens,
            .m = t.matrix.m,
            .n = t.matrix.n,
            .k = t.matrix.k,
            .blocks = tile.blocks,
            .subgroup = t.matrix_subgroup,
            .row_subgroups = tile.row_subgroups,
            .ahead = tile.ahead,
            .accumulate = accumulate,
            .interleave = interleave,
            .experts = experts};
}
#endif

} // namespace tq::gpu
