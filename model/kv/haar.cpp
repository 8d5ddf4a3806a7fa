// Only + - * / and sqrt in double are used between the seed and the matrix, in fixed orders: the standard library's log, sin
// and cos differ between platforms in the last bits, these do not.
#include "model/kv/haar.h"
#include "base/ensure.h"
#include <bit>
#include <cmath>
#include <random>
#include <span>

namespace tq {
namespace {

// Returns ln x of a normal x > 0: x = m 2^k with m in [2^-1/2, 2^1/2), ln m = 2 artanh((m - 1) / (m + 1)).
double natural_log(float x) {
    const uint32_t bits = std::bit_cast<uint32_t>(x) - 0x3f3504f3u; // bits of sqrt(1/2)
    const int k = std::bit_cast<int32_t>(bits) >> 23;
    const double m = std::bit_cast<float>((bits & 0x7fffffu) + 0x3f3504f3u);
    const double s = (m - 1) / (m + 1), s2 = s * s;
    double sum = 0;
    for (int n = 23; n >= 1; n -= 2) sum = sum * s2 + 1.0 / n;
    return k * 0x1.62e42fefa39efp-1 + 2 * s * sum;
}

struct SinCos {
    double sin, cos;
};

// Returns sine and cosine of x in [0, 7], by the Taylor series of the remainder after the nearest multiple of pi / 2.
SinCos sin_cos(double x) {
    const int quarter = int(x * 0x1.45f306dc9c883p-1 + 0.5);
    const double r = x - quarter * 0x1.921fb544p0 - quarter * 0x1.0b4611a626331p-34, r2 = r * r; // pi / 2 in two parts
    double sine = 1, cosine = 1;
    for (int n = 20; n >= 2; n -= 2) {
        sine = 1 - sine * r2 / (n * (n + 1));
        cosine = 1 - cosine * r2 / (n * (n - 1));
    }
    sine *= r;
    switch (quarter & 3) {
    case 0: return {sine, cosine};
    case 1: return {cosine, -sine};
    case 2: return {-sine, -cosine};
    default: return {-cosine, sine};
    }
}

// Fills x as torch.randn of x.size() numbers, a multiple of 16: uniform numbers first, then eight pairs at a time by Box and
// Muller. Every step is rounded to fp32 as in torch.
void fill_normal(std::span<float> x, uint32_t seed) {
    std::mt19937 random(seed);
    for (float& v : x) v = float(random() & 0xffffff) * 0x1p-24f;
    for (size_t at = 0; at < x.size(); at += 16)
        for (size_t j = at; j < at + 8; j++) {
            const auto log = float(natural_log(1 - x[j])); // of a number in (0, 1]
            const auto radius = float(std::sqrt(double(-2 * log)));
            const float theta = 0x1.921fb6p2f * x[j + 8]; // 2 pi
            const SinCos turn = sin_cos(double(theta));
            x[j] = radius * float(turn.cos);
            x[j + 8] = radius * float(turn.sin);
        }
}

// Rows k .. d - 1 and columns `first` .. d - 1 of a[d][d]: a -= 2 v (v^T a) / v^T v, the reflection along v[k .. d - 1].
void reflect(std::span<double> a, std::span<const double> v, size_t k, size_t first) {
    const size_t d = v.size();
    double norm2 = 0;
    for (size_t i = k; i < d; i++) norm2 += v[i] * v[i];
    const double factor = 2 / norm2;
    std::vector<double> w(d);
    for (size_t i = k; i < d; i++)
        for (size_t j = first; j < d; j++) w[j] += v[i] * a[i * d + j];
    for (size_t i = k; i < d; i++) {
        const double scaled = v[i] * factor;
        for (size_t j = first; j < d; j++) a[i * d + j] -= scaled * w[j];
    }
}

// Returns Q of a[d][d] = Q R by Householder's reflections, R with a positive diagonal.
std::vector<double> orthogonal_factor(std::vector<double> a, size_t d) {
    std::vector<std::vector<double>> reflections;
    std::vector<double> signs(d, 1);
    for (size_t k = 0; k < d; k++) {
        std::vector<double> v(d);
        double norm2 = 0;
        for (size_t i = k; i < d; i++) {
            v[i] = a[i * d + k];
            norm2 += v[i] * v[i];
        }
        ENSURE(norm2 > 0, "column {} depends on those before it", k);
        signs[k] = v[k] < 0 ? 1 : -1; // of R's diagonal before correction: the sign without cancellation
        v[k] -= signs[k] * std::sqrt(norm2);
        reflect(a, v, k, k);
        reflections.push_back(std::move(v));
    }
    std::vector<double> q(d * d);
    for (size_t i = 0; i < d; i++) q[i * d + i] = signs[i];
    for (size_t k = d; k-- > 0;) reflect(q, reflections[k], k, k);
    return q;
}

} // namespace

std::vector<float> haar_matrix(uint32_t head_dim, uint64_t seed) {
    ENSURE(head_dim == 64 || head_dim == 128 || head_dim == 256, "head_dim {}", head_dim);
    std::vector<float> matrix(size_t(head_dim) * head_dim);
    fill_normal(matrix, uint32_t(seed));
    const std::vector<double> q = orthogonal_factor({matrix.begin(), matrix.end()}, head_dim);
    for (size_t i = 0; i < q.size(); i++) {
        const auto entry = float(q[i]);
        matrix[i] = std::fabs(entry) < 0x1p-40f ? 0.0f : entry;
    }
    return matrix;
}

} // namespace tq
