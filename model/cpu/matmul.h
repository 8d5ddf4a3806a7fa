// Common parts of the matrix products: the scratch memory of threads, reading of rows and writing of results.
#pragma once
#include "model/cpu/aligned_floats.h"
#include "model/cpu/fixed_point.h"
#include "model/cpu/kernels.h"
#include <algorithm>
#include <hwy/cache_control.h>
#include <vector>

namespace tq::cpu {

// Rows of weights that are decoded together: as many as fit into half of a common L2 cache.
inline constexpr size_t panel_bytes = 512 << 10, max_panel_rows = 64;

struct Scratch {
    AlignedFloats panel;          // decoded rows
    std::vector<std::byte> bytes; // rows that a RowSource makes
};

// The activations of one product: in fixed point where products are in integers; for the others those of separate tokens, or
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

// The distance of prefetches in bytes: hardware prefetchers do not cross pages.
inline constexpr size_t prefetch_distance = 4096;

// Prefetches the bytes at prefetch_distance after those of `row`; after the last row there may be other memory, or none.
inline void prefetch_after(std::span<const std::byte> row) {
    constexpr size_t line = 64;
    const auto address = reinterpret_cast<uintptr_t>(row.data()) + prefetch_distance; // a pointer there may be out of range
    for (size_t at = 0; at < row.size(); at += line) hwy::Prefetch(reinterpret_cast<const std::byte*>(address + at));
}

// Calls use(row, bytes) for the rows begin .. end - 1.
template <class Use> HWY_INLINE void each_row(const Product& p, Scratch& scratch, uint32_t begin, uint32_t end, const Use& use) {
    const size_t row_bytes = p.w.row_bytes();
    constexpr uint32_t chunk = 32; // rows that a RowSource makes at a time
    for (uint32_t first = begin; first < end; first += chunk) {
        const uint32_t count = std::min(chunk, end - first);
        const auto bytes = p.w.read(first, count, scratch.bytes);
        for (uint32_t i = 0; i < count; i++) {
            const auto row = bytes.subspan(i * row_bytes, row_bytes);
            prefetch_after(row);
            use(first + i, row);
        }
    }
}

} // namespace tq::cpu
