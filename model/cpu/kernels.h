// Fast versions of the kernels of model/reference/kernels.h: the same names and meaning, vectorised for the best instruction
// set that the processor has (Highway picks it at run time). Sums have another order; equal inputs give equal bytes in the
// cache.
#pragma once
#include "model/host/network.h"
#include <initializer_list>
#include <string>

namespace tq::cpu {

using host::CacheSide, host::LayerCache, host::Rope, host::Row;

// y[cols] = the row's exact values, as tq::decode_row gives them.
void decode_weights(GgmlType type, std::span<float> y, std::span<const std::byte> row);

// h[t] = the row ids[t] of the embedding. h: [tokens][cols]
void embed(ThreadPool&, std::span<float> h, const Tensor& embedding, std::span<const uint32_t> ids);
// y[t] = w * x[t] / rms(x[t]). x, y: [tokens][cols]; w: [cols]
void rms_norm(ThreadPool&, std::span<float> y, std::span<const float> x, std::span<const float> w, float eps);

struct Product {
    std::span<float> y; // [tokens][w.rows]
    const Tensor& w;
    bool accumulate = false;
};

// A pass of at most so many rows gives each of them the bits that it would get alone, in products and in attention.
inline constexpr uint32_t few_tokens = 8;
// A pass of at least so many rows, and of as many tokens of each of its slots, gives a row the same bits however many there are.
inline constexpr uint32_t many_tokens = 13;

// Names the instruction sets of this processor, on which the kernels and the rounding of their sums depend.
std::string instruction_set();

// For each product y[t] = w x[t], or y[t] += w x[t]. Their w have the same number of columns. x: [tokens][cols]
void matmul(ThreadPool&, std::span<const Product> products, std::span<const float> x);
inline void matmul(ThreadPool& pool, std::initializer_list<Product> products, std::span<const float> x) {
    matmul(pool, std::span(products.begin(), products.size()), x);
}

// gate[t] = silu(w_gate x[t]) * (w_up x[t]), and up[t] = w_up x[t]
void gated_matmul(ThreadPool&, std::span<float> gate, std::span<float> up, const Tensor& w_gate, const Tensor& w_up,
                  std::span<const float> x);

// In place, as ref::q_norm_rope. q: [tokens][heads][head_dim]
void q_norm_rope(ThreadPool&, std::span<float> q, std::span<const float> w, const Rope&, uint32_t heads, float eps, float scale,
                 const Rotation* rotation, const HeadConditions& conditions = {});

// Stores keys and values of the same rows. k, v: [rows][kv heads][head_dim]
void kv_append(ThreadPool&, const LayerCache& cache, std::span<const float> k, std::span<const float> v, std::span<const float> w,
               const Rope&, float eps, const HeadConditions& k_conditions = {});

// As ref::attention; the tokens of a slot are consecutive, in rows and in position. q, y: [rows][heads][head_dim]
void attention(ThreadPool&, std::span<float> y, std::span<const float> q, const LayerCache& cache, uint32_t heads,
               std::span<const Row> rows);

// gate = silu(gate) * up, element by element
void swiglu(ThreadPool&, std::span<float> gate, std::span<const float> up);

} // namespace tq::cpu
