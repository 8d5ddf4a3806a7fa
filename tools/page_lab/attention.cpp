#include "tools/page_lab/attention.h"
#include "base/ensure.h"
#include "model/reference/elementwise.h"
#include <cmath>

namespace tq::page_lab {
namespace {

// The vectors of one kv head, [tokens][dim], so that loops over tokens read memory in order.
std::vector<float> of_head(std::span<const float> all, size_t head, size_t heads, size_t dim) {
    std::vector<float> out(all.size() / heads);
    for (size_t t = 0; t * dim < out.size(); t++) std::copy_n(&all[(t * heads + head) * dim], dim, &out[t * dim]);
    return out;
}

void add_scaled(float* out, const float* x, float weight, size_t dim) {
    for (size_t c = 0; c < dim; c++) out[c] += weight * x[c];
}

} // namespace

void attention(std::span<float> y, std::span<const float> q, const SeenVectors& seen, const Config& config,
               const Window& window) {
    const size_t dim = config.head_dim, heads = config.num_attention_heads, kv_heads = config.num_key_value_heads;
    const size_t tokens = q.size() / heads / dim;
    std::vector<float> weights(tokens);
    for (size_t head = 0; head < heads; head++) {
        const size_t kv = head / (heads / kv_heads);
        const auto k_exact = of_head(seen.k_exact, kv, kv_heads, dim), k_coded = of_head(seen.k_coded, kv, kv_heads, dim);
        const auto v_exact = of_head(seen.v_exact, kv, kv_heads, dim), v_coded = of_head(seen.v_coded, kv, kv_heads, dim);
        for (size_t t = 0; t < tokens; t++) {
            const float* query = &q[(t * heads + head) * dim];
            const size_t first = window.first(uint32_t(t));
            const auto is_coded = [&](size_t p) { return p < first && p != 0; }; // a cache keeps the first token in fp16, too
            float largest = -INFINITY, total = 0;
            for (size_t p = 0; p <= t; p++) {
                weights[p] = ref::dot(query, &(is_coded(p) ? k_coded : k_exact)[p * dim], dim);
                largest = std::max(largest, weights[p]);
            }
            float* out = &y[(t * heads + head) * dim];
            std::fill_n(out, dim, 0.0f);
            for (size_t p = 0; p <= t; p++) {
                const float weight = std::exp(weights[p] - largest);
                total += weight;
                if (weight > 1e-9f) add_scaled(out, &(is_coded(p) ? v_coded : v_exact)[p * dim], weight, dim);
            }
            for (size_t c = 0; c < dim; c++) out[c] /= total;
        }
    }
}

} // namespace tq::page_lab
