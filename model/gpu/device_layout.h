// How a weight matrix lies in device memory: rows of 16-byte words. The parts of a format's blocks lie apart, levels first and
// scales behind them, each as one array over the row, so that no shader needs 8- or 16-bit loads. `interleave` rows at a time lie
// word by word in turn (word 0 of each, word 1 of each, ...), so that invocations that read a row each read memory as one stream.
// shaders/weights.glsl reads what this file writes.
#pragma once
#include "model/weights/weights.h"

namespace tq::gpu {

// Bytes of one row of `cols` weights on the device: a multiple of 16. cols is a multiple of 32, and of the format's blocks.
uint64_t device_row_bytes(GgmlType type, uint32_t cols);

// Bytes of `rows` rows: the last ones share a group of `interleave` with nothing.
uint64_t device_matrix_bytes(GgmlType type, uint32_t rows, uint32_t cols, uint32_t interleave);

// Writes whole rows of `cols` weights, as the file stores them, to rows first, first + step, ... of the matrix
// [device_matrix_bytes] whose beginning `to` is.
void repack_rows(GgmlType type, std::span<std::byte> to, std::span<const std::byte> from, uint32_t first, uint32_t cols,
                 uint32_t interleave, uint32_t step = 1);

} // namespace tq::gpu
