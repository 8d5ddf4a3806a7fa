// Dense linear algebra in double precision, for matrices of one head's channels. All are row-major [n][n].
#pragma once
#include "tools/page_lab/tile.h"

namespace tq::page_lab {

// a = V diag(values) V^T; values descend, and column i of `vectors` belongs to the i-th.
struct Eigen {
    std::vector<double> values;
    Matrix vectors;
};
Eigen eigen(Matrix a, size_t n);

// V diag(max(values, floor)^power) V^T
Matrix power(const Eigen& e, double power, double floor);

Matrix multiply(const Matrix& a, const Matrix& b, size_t n);
Matrix transposed(const Matrix& a, size_t n);

// Upper triangular U with U^T U = a, which is positive definite (ENSURE).
Matrix cholesky_upper(const Matrix& a, size_t n);

// y = a x for each row x of `rows`.
void apply(std::span<float> y, const Matrix& a, std::span<const float> rows, size_t n);

// Returns the mean of x x^T over the rows, [n][n].
Matrix second_moment(std::span<const float> rows, size_t n);

} // namespace tq::page_lab
