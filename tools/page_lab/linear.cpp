#include "tools/page_lab/linear.h"
#include "base/ensure.h"
#include <algorithm>
#include <cmath>
#include <numeric>

namespace tq::page_lab {
namespace {

// Sets a[p][q] to 0 by a rotation of rows and columns p and q, which v collects.
void jacobi_rotation(Matrix& a, Matrix& v, size_t n, size_t p, size_t q) {
    const double apq = a[p * n + q];
    if (std::fabs(apq) < 1e-300) return;
    const double theta = (a[q * n + q] - a[p * n + p]) / (2 * apq);
    const double t = (theta >= 0 ? 1 : -1) / (std::fabs(theta) + std::sqrt(theta * theta + 1));
    const double c = 1 / std::sqrt(t * t + 1), s = t * c;
    for (size_t k = 0; k < n; k++) {
        const double x = a[k * n + p], y = a[k * n + q];
        a[k * n + p] = c * x - s * y;
        a[k * n + q] = s * x + c * y;
    }
    for (size_t k = 0; k < n; k++) {
        const double x = a[p * n + k], y = a[q * n + k];
        a[p * n + k] = c * x - s * y;
        a[q * n + k] = s * x + c * y;
    }
    for (size_t k = 0; k < n; k++) {
        const double x = v[p * n + k], y = v[q * n + k];
        v[p * n + k] = c * x - s * y;
        v[q * n + k] = s * x + c * y;
    }
}

} // namespace

Eigen eigen(Matrix a, size_t n) {
    Matrix v(n * n, 0.0); // rows are vectors until the end
    for (size_t i = 0; i < n; i++) v[i * n + i] = 1;
    for (int sweep = 0; sweep < 30; sweep++) {
        double off = 0, diagonal = 0;
        for (size_t i = 0; i < n; i++)
            for (size_t j = 0; j < n; j++) (i == j ? diagonal : off) += a[i * n + j] * a[i * n + j];
        if (off <= 1e-20 * diagonal) break;
        for (size_t p = 0; p + 1 < n; p++)
            for (size_t q = p + 1; q < n; q++) jacobi_rotation(a, v, n, p, q);
    }
    std::vector<size_t> order(n);
    std::iota(order.begin(), order.end(), size_t(0));
    std::ranges::sort(order, [&](size_t i, size_t j) { return a[i * n + i] > a[j * n + j]; });
    Eigen out{std::vector<double>(n), Matrix(n * n)};
    for (size_t i = 0; i < n; i++) {
        out.values[i] = a[order[i] * n + order[i]];
        for (size_t k = 0; k < n; k++) out.vectors[k * n + i] = v[order[i] * n + k];
    }
    return out;
}

Matrix power(const Eigen& e, double power, double floor) {
    const size_t n = e.values.size();
    Matrix out(n * n, 0.0);
    for (size_t i = 0; i < n; i++) {
        const double value = std::pow(std::max(e.values[i], floor), power);
        for (size_t r = 0; r < n; r++)
            for (size_t c = 0; c < n; c++) out[r * n + c] += value * e.vectors[r * n + i] * e.vectors[c * n + i];
    }
    return out;
}

Matrix multiply(const Matrix& a, const Matrix& b, size_t n) {
    Matrix out(n * n, 0.0);
    for (size_t r = 0; r < n; r++)
        for (size_t k = 0; k < n; k++)
            for (size_t c = 0; c < n; c++) out[r * n + c] += a[r * n + k] * b[k * n + c];
    return out;
}

Matrix transposed(const Matrix& a, size_t n) {
    Matrix out(n * n);
    for (size_t r = 0; r < n; r++)
        for (size_t c = 0; c < n; c++) out[c * n + r] = a[r * n + c];
    return out;
}

Matrix cholesky_upper(const Matrix& a, size_t n) {
    Matrix u(n * n, 0.0);
    for (size_t i = 0; i < n; i++)
        for (size_t j = i; j < n; j++) {
            double sum = a[i * n + j];
            for (size_t k = 0; k < i; k++) sum -= u[k * n + i] * u[k * n + j];
            if (i == j) {
                ENSURE(sum > 0, "pivot {} of {} is {}", i, n, sum);
                u[i * n + i] = std::sqrt(sum);
            } else {
                u[i * n + j] = sum / u[i * n + i];
            }
        }
    return u;
}

void apply(std::span<float> y, const Matrix& a, std::span<const float> rows, size_t n) {
    const std::vector<float> matrix(a.begin(), a.end());
    for (size_t at = 0; at < rows.size(); at += n)
        for (size_t r = 0; r < n; r++) {
            float sums[8] = {};
            for (size_t c = 0; c < n; c += 8)
                for (size_t i = 0; i < 8; i++) sums[i] += matrix[r * n + c + i] * rows[at + c + i];
            y[at + r] = std::accumulate(std::begin(sums), std::end(sums), 0.0f);
        }
}

Matrix second_moment(std::span<const float> rows, size_t n) {
    std::vector<float> sum(n * n, 0.0f);
    for (size_t at = 0; at < rows.size(); at += n)
        for (size_t r = 0; r < n; r++)
            for (size_t c = 0; c < n; c++) sum[r * n + c] += rows[at + r] * rows[at + c];
    Matrix out(sum.begin(), sum.end());
    for (double& v : out) v /= double(rows.size()) / double(n);
    return out;
}

} // namespace tq::page_lab
