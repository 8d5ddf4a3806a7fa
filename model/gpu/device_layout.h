// The layout of weight matrices in device memory: rows of 16-byte words. The parts of a format's blocks are stored separately,
// levels first and scales after them, each as one array over the row, so that no shader needs 8- or 16-bit loads; the bits of a
// block may be in another order than the file's (model/formats/device_blocks.h). `interleave` rows at a time are interleaved word
// by word (word 0 of each, word 1 of each, ...), so that invocations that read a row each read memory as one stream.
// shaders/weights.glsl reads this layout.
#pragma once
#include "model/weights/weights.h"

namespace tq::gpu {

// Returns the size in bytes of a row on the device, a multiple of 16. cols: a multiple of 32 and of the format's blocks.
uint64_t device_row_bytes(GgmlType type, uint32_t cols);

// Returns the size in bytes of `rows` rows; the last group of `interleave` rows may be padded.
uint64_t device_matrix_bytes(GgmlType type, uint32_t rows, uint32_t cols, uint32_t interleave);

// Writes whole rows of `cols` weights, in the file's format, to rows first, first + step, ... of the matrix
// [device_matrix_bytes] that begins at `to`.
void repack_rows(GgmlType type, std::span<std::byte> to, std::span<const std::byte> from, uint32_t first, uint32_t cols,
                 uint32_t interleave, uint32_t step = 1);

} // namespace tq::gpu
