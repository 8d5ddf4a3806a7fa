// What the ways to multiply matrices share: their threads' own memory, and how rows are read and results are written.
#pragma once
#include "model/cpu/aligned_floats.h"
#include "model/cpu/kernels.h"
#include <algorithm>
#include <hwy/cache_control.h>
#include <vector>

namespace tq::cpu {

// Rows of weights that are decoded together: as many as fit into half of a common L2 cache.
inline constexpr size_t panel_bytes = 512 << 10, max_panel_rows = 64;

struct Scratch {
    AlignedFloats panel;          // decoded rows
    std::vector<std::byte> bytes; // of rows that lie nowhere
};

inline void put(const Product& p, size_t token, size_t row, float value) {
    float& y = p.y[token * p.w.rows + row];
    y = p.accumulate ? y + value : value;
}

// Bytes that are asked of memory before they are read: what a processor's own prefetcher does not do across pages.
inline constexpr size_t prefetch_distance = 4096;

// Asks for the bytes as far behind those of `row` as prefetch_distance; behind the last row lies what is read next, or nothing.
inline void prefetch_after(std::span<const std::byte> row) {
    constexpr size_t line = 64;
    const auto address = reinterpret_cast<uintptr_t>(row.data()) + prefetch_distance; // a pointer there may be out of range
    for (size_t at = 0; at < row.size(); at += line) hwy::Prefetch(reinterpret_cast<const std::byte*>(address + at));
}

// use(row, bytes) for the rows begin .. end - 1.
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
