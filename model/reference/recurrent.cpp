#include "model/reference/recurrent.h"
#include "base/ensure.h"
#include "model/reference/elementwise.h"
#include <cmath>

namespace tq::ref {
namespace {

float sigmoid(float x) { return 1 / (1 + std::exp(-x)); }
float silu(float x) { return x / (1 + std::exp(-x)); }
float softplus(float x) { return x > 20 ? x : std::log1p(std::exp(x)); }

// One token of one value head.
void delta_step(std::span<float> y, std::span<float> m, std::span<const float> q, std::span<const float> k,
                std::span<const float> v, float beta, float alpha) {
    const size_t d = v.size();
    std::vector<float> u(d);
    for (float& one : m) one *= alpha;
    for (size_t key = 0; key < d; key++)
        for (size_t c = 0; c < d; c++) u[c] += k[key] * m[key * d + c];
    for (size_t c = 0; c < d; c++) u[c] = beta * (v[c] - u[c]);
    for (size_t key = 0; key < d; key++)
        for (size_t c = 0; c < d; c++) m[key * d + c] += k[key] * u[c];
    std::ranges::fill(y, 0.0f);
    for (size_t key = 0; key < d; key++)
        for (size_t c = 0; c < d; c++) y[c] += q[key] * m[key * d + c];
}

} // namespace

void conv_silu(ThreadPool& pool, std::span<float> x, std::span<const float> w, LayerStates& states, std::span<const Row> rows) {
    const uint32_t channels = states.shape.channels(), kernel = states.shape.conv_kernel;
    ENSURE(x.size() == rows.size() * channels && w.size() == size_t(channels) * kernel, "{} values of {} rows", x.size(),
           rows.size());
    pool.each(channels, 64, [&](uint32_t begin, uint32_t end) {
        for (uint32_t c = begin; c < end; c++)
            for (size_t t = 0; t < rows.size(); t++) {
                const std::span history = states.history(rows[t].slot);
                float sum = 0;
                for (uint32_t j = 0; j + 1 < kernel; j++) sum += w[c * kernel + j] * history[j * channels + c];
                const float own = x[t * channels + c];
                sum += w[c * kernel + kernel - 1] * own;
                for (uint32_t j = 0; j + 2 < kernel; j++) history[j * channels + c] = history[(j + 1) * channels + c];
                history[(kernel - 2) * channels + c] = own;
                x[t * channels + c] = silu(sum);
            }
    });
}

void l2_norm(ThreadPool& pool, std::span<float> x, const Recurrent& shape, float eps) {
    const uint32_t d = shape.head_dim, heads = 2 * shape.key_heads;
    pool.each(uint32_t(x.size() / shape.channels()) * heads, 8, [&](uint32_t begin, uint32_t end) {
        for (uint32_t i = begin; i < end; i++) {
            const uint32_t head = i % heads;
            const std::span of = x.subspan(size_t(i / heads) * shape.channels() + head * d, d);
            const float scale = 1 / std::sqrt(dot(of.data(), of.data(), d) + eps);
            const float query = head < shape.key_heads ? 1 / std::sqrt(float(d)) : 1;
            for (float& v : of) v = v * scale * query;
        }
    });
}

void state_gates(ThreadPool& pool, std::span<float> beta, std::span<float> alpha, std::span<const float> a,
                 std::span<const float> dt) {
    pool.each(uint32_t(beta.size()), 256, [&](uint32_t begin, uint32_t end) {
        for (uint32_t i = begin; i < end; i++) {
            const size_t head = i % a.size();
            beta[i] = sigmoid(beta[i]);
            alpha[i] = std::exp(a[head] * softplus(alpha[i] + dt[head]));
        }
    });
}

void delta_rule(ThreadPool& pool, std::span<float> y, std::span<const float> x, std::span<const float> beta,
                std::span<const float> alpha, LayerStates& states, std::span<const Row> rows) {
    const Recurrent& shape = states.shape;
    const uint32_t d = shape.head_dim, heads = shape.value_heads, keys = shape.key_size();
    ENSURE(y.size() == rows.size() * shape.value_size() && x.size() == rows.size() * shape.channels(), "{} values of {} rows",
           x.size(), rows.size());
    pool.each(heads, 1, [&](uint32_t begin, uint32_t end) {
        for (uint32_t head = begin; head < end; head++)
            for (size_t t = 0; t < rows.size(); t++) {
                const std::span token = x.subspan(t * shape.channels(), shape.channels());
                const uint32_t key_head = shape.key_head(head);
                delta_step(y.subspan((t * heads + head) * d, d), states.matrix(rows[t].slot, head),
                           token.subspan(key_head * d, d), token.subspan(keys + key_head * d, d),
                           token.subspan(2 * keys + head * d, d), beta[t * heads + head], alpha[t * heads + head]);
            }
    });
}

void gated_norm(ThreadPool& pool, std::span<float> y, std::span<const float> z, std::span<const float> w, float eps) {
    const size_t d = w.size();
    pool.each(uint32_t(y.size() / d), 8, [&](uint32_t begin, uint32_t end) {
        for (uint32_t i = begin; i < end; i++) {
            const std::span of = y.subspan(i * d, d);
            const float scale = inverse_rms(of, eps);
            for (size_t c = 0; c < d; c++) of[c] = of[c] * scale * w[c] * silu(z[i * d + c]);
        }
    });
}

void split_gates(ThreadPool& pool, std::span<float> q, std::span<float> gate, std::span<const float> both, uint32_t head_dim) {
    pool.each(uint32_t(q.size() / head_dim), 64, [&](uint32_t begin, uint32_t end) {
        for (size_t i = begin; i < end; i++) {
            std::ranges::copy(both.subspan(2 * i * head_dim, head_dim), &q[i * head_dim]);
            std::ranges::copy(both.subspan((2 * i + 1) * head_dim, head_dim), &gate[i * head_dim]);
        }
    });
}

void apply_gates(ThreadPool& pool, std::span<float> y, std::span<const float> gate) {
    pool.each(uint32_t(y.size()), 1024, [&](uint32_t begin, uint32_t end) {
        for (uint32_t i = begin; i < end; i++) y[i] = y[i] * sigmoid(gate[i]);
    });
}

void share_gate(ThreadPool& pool, std::span<float> y, std::span<const float> w, std::span<const float> x) {
    const size_t tokens = x.size() / w.size(), cols = y.size() / tokens;
    pool.each(uint32_t(tokens), 1, [&](uint32_t begin, uint32_t end) {
        for (uint32_t t = begin; t < end; t++) {
            const float share = sigmoid(dot(w.data(), &x[t * w.size()], w.size()));
            for (float& v : y.subspan(t * cols, cols)) v *= share;
        }
    });
}

} // namespace tq::ref
