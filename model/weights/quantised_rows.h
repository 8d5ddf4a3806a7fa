// Converts a file's matrix to another weight format.
#pragma once
#include "model/weights/tensor.h"

namespace tq {

// True if quantised() accepts the tensor: it is in F32, F16 or BF16.
bool can_quantise(const Tensor& tensor);

// Returns `tensor` in Q8_0 or Q4_0; its rows are made from the file's on demand. A row with a NaN or infinite weight keeps a
// block that is not finite. cols is a multiple of 32.
Tensor quantised(const Tensor& tensor, GgmlType type);

// Returns a matrix in TQ1_0 as one in TQ2_0, or one in Q1_0 as one in Q2_0, with the same weights: devices and the CPU have
// kernels only of these. Other matrices stay as they are.
Tensor in_two_bits(const Tensor& tensor);

} // namespace tq
