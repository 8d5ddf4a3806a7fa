// Tensors that are made of others on demand: the matrices of experts in one, rows in another order, and rows in F32.
#pragma once
#include "model/weights/tensor.h"

namespace tq {

// Returns matrices of one format and one size, one below the other; they are mapped if the parts lie in files.
Tensor stacked(std::string name, std::vector<Tensor> parts);

// Returns these rows of a matrix, in this order: copies, made on demand.
Tensor picked(std::string name, const Tensor& from, std::vector<uint32_t> rows);

// Returns the exact values of a matrix in F32.
Tensor in_f32(const Tensor& tensor);

} // namespace tq
