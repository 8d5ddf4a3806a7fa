// Tensors that are made of others on demand: the matrices of experts in one, and rows in F32.
#pragma once
#include "model/weights/tensor.h"

namespace tq {

// Returns matrices of one format and one size, one below the other; they are mapped where these lie in files.
Tensor stacked(std::string name, std::vector<Tensor> parts);

// Returns the exact values of a matrix in F32.
Tensor in_f32(const Tensor& tensor);

} // namespace tq
