// Random rows in any weight format, the same on every machine: word i of row r is a hash of (seed, r, i), and only the scales
// that decide the size of the weights are set. So no model must be downloaded, or even kept in memory, to be run.
#pragma once
#include "model/weights/tensor.h"

namespace tq {

// Returns a matrix whose weights have mean 0 and about the given standard deviation (within 5 %; for F32, F16 and BF16 within a
// factor of 1.5, for MXFP4 of 2). `seed` differs between tensors.
Tensor synthetic_matrix(std::string name, GgmlType type, uint32_t rows, uint32_t cols, double deviation, uint32_t seed);

// Returns the standard deviation of the weights of random blocks whose scale is 1, for a format with fp16 scales.
double block_deviation(GgmlType type);

// Returns a vector in F32 with values from `low` to below `high`.
Tensor synthetic_vector(std::string name, uint32_t cols, float low, float high, uint32_t seed);

// Returns F32 norm weights, from 0.75 to 1.25.
Tensor synthetic_norm(std::string name, uint32_t cols, uint32_t seed);

} // namespace tq
