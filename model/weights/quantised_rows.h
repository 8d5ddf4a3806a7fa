// A file's matrix in another weight format than the file has it in.
#pragma once
#include "model/weights/tensor.h"

namespace tq {

// Whether quantised() is for such a tensor: one in F32, F16 or BF16.
bool can_quantise(const Tensor& tensor);

// `tensor` in Q8_0 or Q4_0; its rows are made from the file's when they are asked for. A row with a NaN or infinite weight keeps
// a block that is not finite. cols is a multiple of 32.
Tensor quantised(const Tensor& tensor, GgmlType type);

} // namespace tq
