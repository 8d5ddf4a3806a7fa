// Feed-forwards of experts (mixture of experts): which experts a token has, the products of a token with their matrices, and
// their sum. All experts' matrices are one, under each other: gate and up [count * rows][hidden], down [count * hidden][rows].
#pragma once
#include "model/gpu/matmul.h"
#include "shaders/routes.h"
#include <optional>

namespace tq::gpu {

// The experts of a layer, and how many of them a token has: at most MAX_EXPERTS and MAX_EXPERTS_USED.
struct Experts {
    uint32_t count, used;
    bool normalise = true; // the weights of a row's experts are divided by their sum
};

// The experts of the rows of a pass and their weights (shaders/routes.h): a buffer of routes_bytes, which route() fills. A pair
// is a row's one expert: pair row * used + rank, the expert with the largest weight first.
struct Routes {
    const Buffer& buffer;
    Experts experts;
};
uint64_t routes_bytes(const Tuning&, const Experts&, uint32_t tokens); // for passes of at most `tokens`

// Chooses for each row the `used` experts with the largest logits; if logits are equal, those with the lower numbers. Their
// weights are the softmax over all logits, scaled to a sum of 1 if Experts::normalise. logits: [tokens][count]. If a logit is NaN
// or infinity (-infinity is allowed), all weights are NaN.
void route(Pass&, const Routes&, const Buffer& logits);

// y[pair] = W_e x for the pair's expert e. w: [count * rows][cols]; y: [tokens * used][rows]. x: [tokens][cols], or [tokens *
// used][cols] if x.rows_per_token is `used`; nothing past the pass's tokens is read or written.
void matmul_experts(Pass&, View y, const Matrix& w, Inputs& x, const Routes&);

// The folded norm of one row (matvec_normed), in place of x.
struct FoldedNorm {
    const Normed& x;
    float eps;
};
// y[pair] = silu(gate_e x) * (up_e x). gate_up: LayerMatrices::ffn_gate_up: one stack, whose rows 2 i and 2 i + 1 are pairs; or
// two. y: [tokens * used][cols]; both: room for twice as much. x: [tokens][hidden].
void gated_experts(Pass&, const Buffer& y, const Buffer& both, const std::vector<Matrix>& gate_up, Inputs& x, const Routes&,
                   std::optional<FoldedNorm> normed = {});

// h[t] += the sum over t's pairs, in the order of ranks, of weight * y[pair]. h: [tokens][cols], y: [tokens * used][cols]
void add_experts(Pass&, const Buffer& h, const Buffer& y, const Routes&, uint32_t cols);

// The kernel of their products: matvec, a pair at a time, or one of blocks, whose tiles have the pairs of one expert. As for
// matmul_kernel, it depends on the tokens that the pass is recorded for, and not on those of a run.
MatmulKernel experts_kernel(const Tuning&, GgmlType, const Experts&, uint32_t tokens, bool separate);

// The pairs of a tile. Tiles do not depend on a matrix's type, so that one table of them serves all products of a layer:
// matmul_tiled runs instead of matmul_dot and matmul_coopmat, because these do not support every type.
uint32_t expert_tile_pairs(const Tuning&, const Experts&, uint32_t tokens);

// Bytes of the activations of a pass of at most `tokens` tokens; rounded: Inputs::rounded of the hidden state and of the input of
// down.
struct ExpertBytes {
    uint64_t logits, routes, gate_up, ffn, down, rounded;

    ExpertBytes(const Tuning&, const Experts&, uint32_t tokens, uint32_t hidden, uint32_t rows);
};

} // namespace tq::gpu
