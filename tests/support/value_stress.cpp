#include "tests/support/value_stress.h"
#include "base/error.h"
#include <algorithm>
#include <cmath>

namespace tq::test {
namespace {

constexpr double largest_logarithm = 8;

// Q^T diag(scales) Q
std::vector<double> symmetric(std::span<const double> q, std::span<const double> scales) {
    const size_t d = scales.size();
    std::vector<double> out(d * d);
    for (size_t k = 0; k < d; k++)
        for (size_t i = 0; i < d; i++)
            for (size_t j = 0; j < d; j++) out[i * d + j] += q[k * d + i] * scales[k] * q[k * d + j];
    return out;
}

double column_square(const ValueTensors& t, uint32_t head, uint32_t channel) {
    double out = 0;
    const size_t cols = size_t(t.kv_heads) * t.group * t.head_dim;
    for (uint32_t r = 0; r < t.hidden_size; r++)
        for (uint32_t h = head * t.group; h < (head + 1) * t.group; h++)
            out += std::pow(double(t.output[r * cols + h * t.head_dim + channel]), 2);
    return out / t.hidden_size / t.group;
}

} // namespace

double Draws::logarithm() {
    const double normal = random_.normal();
    if (tails_ == 0) return normal;
    double squares = 0;
    for (uint32_t i = 0; i < tails_; i++) squares += std::pow(double(random_.normal()), 2);
    return normal / std::sqrt(squares / tails_);
}

std::vector<double> Draws::scales(uint32_t count, double spread, const Outliers& outliers) {
    if (outliers.count > count) fail("{} outliers are more than the {} channels or pairs of channels", outliers.count, count);
    if (!(outliers.factor > 0) || !std::isfinite(outliers.factor)) fail("a factor must be above 0, not {}", outliers.factor);
    std::vector<double> out(count);
    std::vector<uint32_t> left(count);
    for (uint32_t i = 0; i < count; i++) {
        out[i] = std::exp(std::clamp(spread * logarithm(), -largest_logarithm, largest_logarithm));
        left[i] = i;
    }
    for (uint32_t i = 0; i < outliers.count; i++) {
        std::swap(left[i], left[i + random_.below(count - i)]);
        out[left[i]] *= outliers.factor;
    }
    return out;
}

std::vector<double> Draws::directions(uint32_t d) {
    std::vector<double> q(size_t(d) * d);
    for (double& v : q) v = random_.normal();
    for (uint32_t i = 0; i < d; i++) // Gram and Schmidt, twice for accuracy
        for (const bool again : {false, true}) {
            double* row = &q[size_t(i) * d];
            for (uint32_t j = 0; j < i; j++) {
                double dot = 0;
                for (uint32_t c = 0; c < d; c++) dot += row[c] * q[size_t(j) * d + c];
                for (uint32_t c = 0; c < d; c++) row[c] -= dot * q[size_t(j) * d + c];
            }
            double square = 0;
            for (uint32_t c = 0; c < d; c++) square += row[c] * row[c];
            for (uint32_t c = 0; c < d; c++) row[c] /= std::sqrt(square);
            if (again) break;
        }
    return q;
}

void scale_values(ValueTensors& t, uint32_t head, std::span<const double> scales) {
    const size_t cols = size_t(t.kv_heads) * t.group * t.head_dim;
    for (uint32_t c = 0; c < t.head_dim; c++) {
        const size_t row = size_t(head) * t.head_dim + c;
        for (uint32_t i = 0; i < t.hidden_size; i++)
            t.v[row * t.hidden_size + i] = float(t.v[row * t.hidden_size + i] * scales[c]);
        if (t.bias) (*t.bias)[row] = float((*t.bias)[row] * scales[c]);
        for (uint32_t r = 0; r < t.hidden_size; r++)
            for (uint32_t h = head * t.group; h < (head + 1) * t.group; h++) {
                float& w = t.output[r * cols + h * t.head_dim + c];
                w = float(w / scales[c]);
            }
    }
}

void stretch_values(ValueTensors& t, uint32_t head, std::span<const double> directions, std::span<const double> scales) {
    const uint32_t d = t.head_dim;
    std::vector<double> inverse_scales;
    for (const double s : scales) inverse_scales.push_back(1 / s);
    const std::vector<double> m = symmetric(directions, scales), inverse = symmetric(directions, inverse_scales);
    // x[c * step] = matrix x, d elements; both matrices are symmetric
    const auto multiply = [d](const std::vector<double>& matrix, float* x, size_t step) {
        std::vector<double> before(d);
        for (uint32_t c = 0; c < d; c++) before[c] = x[c * step];
        for (uint32_t c = 0; c < d; c++) {
            double sum = 0;
            for (uint32_t i = 0; i < d; i++) sum += matrix[size_t(c) * d + i] * before[i];
            x[c * step] = float(sum);
        }
    };
    for (uint32_t i = 0; i < t.hidden_size; i++) multiply(m, &t.v[size_t(head) * d * t.hidden_size + i], t.hidden_size);
    if (t.bias) multiply(m, &(*t.bias)[size_t(head) * d], 1);
    const size_t cols = size_t(t.kv_heads) * t.group * d;
    for (uint32_t r = 0; r < t.hidden_size; r++)
        for (uint32_t h = head * t.group; h < (head + 1) * t.group; h++) multiply(inverse, &t.output[r * cols + h * d], 1);
}

std::vector<double> balancing_scales(const ValueTensors& t, uint32_t head, std::span<const float> norm) {
    std::vector<double> out;
    for (uint32_t c = 0; c < t.head_dim; c++) {
        const size_t row = size_t(head) * t.head_dim + c;
        double square = t.bias ? std::pow(double((*t.bias)[row]), 2) : 0;
        for (uint32_t i = 0; i < t.hidden_size; i++) square += std::pow(double(t.v[row * t.hidden_size + i]) * norm[i], 2);
        const double scale = std::pow(column_square(t, head, c) / square, 0.25);
        out.push_back(scale > 0 && std::isfinite(scale) ? scale : 1);
    }
    return out;
}

} // namespace tq::test
