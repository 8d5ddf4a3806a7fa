// Common parts of the matrix products: the scratch memory of threads, reading of rows and writing of results.
#pragma once
#include "model/cpu/aligned_floats.h"
#include "model/cpu/fixed_point.h"
#include "model/cpu/kernels.h"
#include <algorithm>
#include <vector>

namespace tq::cpu {

// Rows of weights that are decoded together: as many as fit into half of a common L2 cache.
inline constexpr size_t panel_bytes = 512 << 10, max_panel_rows = 64;

struct Scratch {
    AlignedFloats panel;          // decoded rows
    std::vector<std::byte> bytes; // rows that a RowSource makes
};

// The activations of one product: in fixed point if products are in integers; otherwise in fp32, those of separate tokens, or
// packed for a block.
struct Inputs {
    bool separate;
    std::span<const float> x;
    size_t tokens;
    FixedPoint fixed;
};

// The tokens of a tile of a block, whose number is padded to whole tiles; packed[tiles * tile * cols] = x[tokens][cols], tiles
// begin .. end - 1.
size_t token_tile();
void pack_tokens(std::span<float> packed, std::span<const float> x, size_t cols, uint32_t begin, uint32_t end);

// Computes rows begin .. end - 1 of a product.
void multiply(const Product& p, const Inputs& x, uint32_t begin, uint32_t end);

// gate[i] = silu(gate[i]) * up[i]
void swiglu(float* gate, const float* up, size_t count);

inline void put(const Product& p, size_t token, size_t row, float value) {
    float& y = p.y[token * p.w.rows + row];
    const float product = value * p.w.factor(uint32_t(row));
    y = p.accumulate ? y + product : product;
}

} // namespace tq::cpu
