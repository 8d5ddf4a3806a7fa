// Fast versions of the kernels of model/reference/kernels.h: the same names and meaning, vectorised for the best instruction
// set that the processor has (Highway picks it at run time). Sums have another order; equal inputs give equal bytes in the
// cache.
#pragma once
#include "model/host/network.h"
#include <initializer_list>
#include <string>

namespace tq::cpu {

using host::CacheSide, host::LayerCache, host::Network, host::PageScores, host::Rope, host::Row;

// y[cols] = the row's exact values, as tq::decode_row gives them.
void decode_weights(GgmlType type, std::span<float> y, std::span<const std::byte> row);

// h[t] = the row ids[t] of the embedding. h: [tokens][cols]
void embed(ThreadPool&, std::span<float> h, const Tensor& embedding, std::span<const uint32_t> ids);
// y[t] = w * x[t] / rms(x[t]). x, y: [tokens][cols]; w: [cols]
void rms_norm(ThreadPool&, std::span<float> y, std::span<const float> x, std::span<const float> w, float eps);

// y[t] = x for every token: the biases that products are added to. y: [tokens][x.size()]
void broadcast(std::span<float> y, std::span<const float> x);

struct Product {
    std::span<float> y; // [tokens][w.rows]
    const Tensor& w;
    bool accumulate = false;
};

// Products have two kinds of kernels. If rows are `separate`, each gets the bits that it would get alone, and they share the
// reading of the weights. Otherwise they are a block: a row gets the same bits whatever the number and content of the others. A
// pass has at most max_separate_rows separate rows, unless has_alike_rows().

// Returns the maximum of separate rows of one product with any of these matrices; it is larger if all have integer products.
uint32_t max_separate_rows(const Network& net);

// Whether the integer products of all large matrices are as fast for blocks as other products, so that all rows can be separate.
bool has_alike_rows(const Network& net);

// Names the instruction sets of this processor, on which the kernels and the rounding of their sums depend.
std::string instruction_set();

// For each product y[t] = w x[t], or y[t] += w x[t]. Their w have the same number of columns. x: [tokens][cols]
void matmul(ThreadPool&, std::span<const Product> products, std::span<const float> x, bool separate);
inline void matmul(ThreadPool& pool, std::initializer_list<Product> products, std::span<const float> x, bool separate) {
    matmul(pool, std::span(products.begin(), products.size()), x, separate);
}

// gate[t] = silu(w_gate x[t]) * (w_up x[t]), and up[t] = w_up x[t]
void gated_matmul(ThreadPool&, std::span<float> gate, std::span<float> up, const Tensor& w_gate, const Tensor& w_up,
                  std::span<const float> x, bool separate);

// Products with experts; each matrix is a stack of `count` experts' matrices. If the matrices have integer products, the tokens
// of every pass use them, since experts have few tokens each; so a token has the same bits in any company.
struct Experts {
    uint32_t count, per_token;
    const host::Routes& routes;
};
// y[t][rank] = silu(gate x[t]) * (up x[t]) of the token's expert of each rank. x: [tokens][cols], y: [tokens][ranks][rows of one]
void gated_matmul(ThreadPool&, std::span<float> y, const Tensor& w_gate, const Tensor& w_up, std::span<const float> x,
                  const Experts&, bool separate);
// h[t] += sum of weight * (w x[t][rank]) over the ranks, in their order. x: [tokens][ranks][cols], h: [tokens][rows of one]
void matmul_add(ThreadPool&, std::span<float> h, const Tensor& w, std::span<const float> x, const Experts&, bool separate);

// Begins to read the matrices of the tokens' experts from the file of these stacks.
void read_ahead(ThreadPool&, std::initializer_list<const Tensor*> stacks, const Experts&);

// In place, as ref::q_norm_rope. q: [tokens][heads][head_dim]
void q_norm_rope(ThreadPool&, std::span<float> q, std::span<const float> w, const Rope&, uint32_t heads, std::optional<float> eps,
                 float scale, const Rotation* rotation, const HeadConditions& conditions = {}, PageScores* page_scores = nullptr);

// Stores keys and values of the same rows. k, v: [rows][kv heads][head_dim]
void kv_append(ThreadPool&, const LayerCache& cache, std::span<const float> k, std::span<const float> v, std::span<const float> w,
               const Rope&, std::optional<float> eps, const HeadConditions& k_conditions = {});

// One row after the other, or blocks of a slot's rows.
enum class AttentionKernel { fastest, rows, blocks };

// Like ref::attention. The tokens of a slot are consecutive, in rows and in position. With every kernel each row has the bits
// that it has alone. q, y: [rows][heads][head_dim]
void attention(ThreadPool&, std::span<float> y, std::span<const float> q, const PageScores& page_scores, const LayerCache& cache,
               uint32_t heads, std::span<const Row> rows, AttentionKernel kernel = AttentionKernel::fastest);

} // namespace tq::cpu
