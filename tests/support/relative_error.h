// The error of logits.
#pragma once
#include <cmath>
#include <functional>
#include <numeric>
#include <span>

namespace tq {

// The limit of relative errors with an f32 cache, of everything that computes in fp32: only the order of sums and the rounding of
// functions differ.
constexpr double exact_limit = 1e-4;

// ||a||
inline double norm(std::span<const float> a) {
    return std::sqrt(std::transform_reduce(a.begin(), a.end(), 0.0, std::plus(), [](double x) { return x * x; }));
}

// ||a - b|| / ||b||
inline double relative_error(std::span<const float> a, std::span<const float> b) {
    double error = 0;
    for (size_t i = 0; i < b.size(); i++) error += (double(a[i]) - b[i]) * (double(a[i]) - b[i]);
    return a.size() == b.size() ? std::sqrt(error) / norm(b) : INFINITY;
}

} // namespace tq
