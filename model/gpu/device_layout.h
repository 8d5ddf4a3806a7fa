// How a weight matrix lies in device memory: rows of 16-byte words. The parts of a format's blocks lie apart, levels first and
// scales behind them, each as one array over the row, so that no shader needs 8- or 16-bit loads. shaders/weights.glsl reads what
// this file writes.
#pragma once
#include "model/weights.h"

namespace tq::gpu {

// Bytes of one row of `cols` weights on the device: a multiple of 16. cols is a multiple of 32, and of the format's blocks.
uint64_t device_row_bytes(GgmlType type, uint32_t cols);

// to[device_row_bytes * rows] = rows of `cols` weights as the file stores them.
void repack_rows(GgmlType type, std::span<std::byte> to, std::span<const std::byte> from, uint32_t rows, uint32_t cols);

} // namespace tq::gpu
