// Recording of products, of the rows of a pass and of experts: shared by matmul.cpp and experts.cpp.
#pragma once
#include "model/gpu/matmul.h"
#include <optional>

namespace tq::gpu {

// The pairs of a product of experts (experts.h), which it has in place of the rows of a pass.
struct Pairs {
    const Buffer& routes;
    uint32_t experts, used; // of the model, and of a token
    uint32_t per_x;         // that share a row of x
    uint32_t tiles_at;      // offset of their tiles in `routes`, in words
    uint32_t max_tiles;
};

// A product of a matrix with one vector, with pass.tokens of them, or with one for each pair.
struct Matvec {
    View y, x;
    std::optional<View> next_norm = {};
    uint32_t output, columns = 1;
    bool normed = false;
    uint32_t squares = 0, square_count = 0; // as in matvec_params
    float eps = 0;
    uint32_t scaled = 0;
    const Pairs* pairs = nullptr;
};

inline shader::matvec_dot_constants matvec_dot_constants(const Tuning& t, const MatvecTile& tile, const Matvec& v,
                                                         const Matrix& w) {
    return {.workgroup = tile.workgroup,
            .lanes = tile.lanes,
            .rows = tile.rows,
            .matvec_output = v.output,
            .interleave = w.interleave,
            .normed = v.normed,
            .subgroup = t.subgroup,
            .columns = v.columns,
            .experts = v.pairs != nullptr};
}

inline shader::matvec_constants matvec_constants(const Tuning& t, const MatvecTile& tile, const Matvec& v, const Matrix& w) {
    return {.workgroup = tile.workgroup,
            .lanes = tile.lanes,
            .rows = tile.rows,
            .matvec_output = v.output,
            .interleave = w.interleave,
            .normed = v.normed,
            .subgroup = t.subgroup,
            .columns = v.columns,
            .experts = v.pairs != nullptr,
            .blocks = t.matvec_blocks};
}

// Returns its number of workgroups.
uint32_t record_matvec(Pass&, const Matvec&, const Matrix& w);

// A product of a matrix with a block of rows, or of pairs, by a kernel other than matvec.
struct BlockProduct {
    MatmulKernel kernel;
    View y;
    const Matrix& w;
    Inputs& x;
    bool accumulate = false;
    const Pairs* pairs = nullptr;
};
void record_block(Pass&, const BlockProduct&);

} // namespace tq::gpu
