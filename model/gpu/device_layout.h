// The layout of weight matrices in device memory: rows of 16-byte words. The parts of a format's blocks are stored separately,
// levels first and scales after them, each as one array over the row, so that no shader needs 8- or 16-bit loads; the bits of a
// block may be in another order than the file's (model/files/formats/device_blocks.h). `interleave` rows at a time are
// interleaved word by word (word 0 of each, word 1 of each, ...), so that invocations that read a row each read memory as one
// stream. shaders/weight_formats.glsl reads this layout. The rows of a format with a grid follow the grid
// (model/files/formats/grids.h). A row of a format with factors (BlockFormat::has_factor) ends with its factor, in fp32, in a
// 16-byte word of its own.
//
// The fp16 scales and minimums of blocks are stored 2^10 times as large if that leaves all of a matrix's within fp16: then none
// is a denormal number, which GPUs may read as 0. Those of real models are often denormal (below 2^-14), as Q4_K and Q6_K scale
// scales.
#pragma once
#include "model/weights/weights.h"

namespace tq::gpu {

// Returns the size in bytes of a row on the device, a multiple of 16. cols: a multiple of 32 and of the format's blocks.
uint64_t device_row_bytes(GgmlType type, uint32_t cols);

// Returns the size in bytes of `rows` rows; the last group of `interleave` rows may be padded.
uint64_t device_rows_bytes(GgmlType type, uint32_t rows, uint32_t cols, uint32_t interleave);

// Returns the table that precedes a matrix's rows; empty for formats without a grid.
std::span<const std::byte> device_grid(GgmlType type);

// Returns the size in bytes of a matrix.
uint64_t device_matrix_bytes(GgmlType type, uint32_t rows, uint32_t cols, uint32_t interleave);

inline constexpr int raised_by = 10; // log2 of the factor of raised scales

struct RowLayout {
    GgmlType type;
    uint32_t cols, interleave;
    bool raised; // the scales
    // The factor that kernels multiply scales by.
    float scale_unit() const { return raised ? 1.0f / (1 << raised_by) : 1.0f; }
};

// Writes whole rows of weights, in the file's format, to rows first, first + step, ... of the matrix [device_rows_bytes] at `to`.
// factors: one for each row, if the format has some; empty: 1. Returns false if a scale cannot be raised: then its row is
// undefined.
[[nodiscard]] bool repack_rows(const RowLayout& layout, std::span<std::byte> to, std::span<const std::byte> from, uint32_t first,
                               uint32_t step = 1, std::span<const float> factors = {});

} // namespace tq::gpu
