// The definitions of the kernels of model/gpu/elementwise.h, in the manner of model/reference/kernels.h.
#pragma once
#include "base/dot.h"
#include "base/thread_pool.h"
#include "model/weights/tensor.h"
#include <algorithm>
#include <cmath>
#include <limits>
#include <span>

namespace tq::ref {

// Returns 1 / sqrt of a sum or mean of squares. If these overflow, it is a NaN, which reaches the logits and is reported;
// 1 / infinity would make silent zeros.
inline float inverse_root(float squares) {
    return squares <= 3.4e38f ? 1 / std::sqrt(squares) : std::numeric_limits<float>::quiet_NaN();
}

// Returns 1 / rms of x.
inline float inverse_rms(std::span<const float> x, float eps) {
    return inverse_root(dot(x.data(), x.data(), x.size()) / float(x.size()) + eps);
}

// h[t] = row ids[t] of `embedding`. h: [ids.size()][cols]
inline void embed(ThreadPool& pool, std::span<float> h, const Tensor& embedding, std::span<const uint32_t> ids) {
    pool.each(uint32_t(ids.size()), 8, [&](uint32_t begin, uint32_t end) {
        std::vector<std::byte> scratch;
        for (uint32_t t = begin; t < end; t++)
            embedding.decode(ids[t], h.subspan(size_t(t) * embedding.cols, embedding.cols), scratch);
    });
}

// y[t] = x for every token. y: [tokens][x.size()]
inline void broadcast(std::span<float> y, std::span<const float> x) {
    for (size_t row = 0; row < y.size(); row += x.size()) std::copy(x.begin(), x.end(), y.begin() + std::ptrdiff_t(row));
}

// y[t] = w * x[t] / sqrt(mean(x[t]^2) + eps). x, y: [tokens][w.size()]
inline void rms_norm(ThreadPool& pool, std::span<float> y, std::span<const float> x, std::span<const float> w, float eps) {
    const size_t cols = w.size();
    pool.each(uint32_t(x.size() / cols), 4, [&](uint32_t begin, uint32_t end) {
        for (size_t row = begin * cols; row < end * cols; row += cols) {
            const float scale = inverse_rms(x.subspan(row, cols), eps);
            for (size_t i = 0; i < cols; i++) y[row + i] = x[row + i] * scale * w[i];
        }
    });
}

// gate = silu(gate) * up
inline void swiglu(ThreadPool& pool, std::span<float> gate, std::span<const float> up) {
    pool.each(uint32_t(gate.size()), 1024, [&](uint32_t begin, uint32_t end) {
        for (uint32_t i = begin; i < end; i++) gate[i] = gate[i] / (1 + std::exp(-gate[i])) * up[i];
    });
}

} // namespace tq::ref
