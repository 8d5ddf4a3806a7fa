// The router of a mixture of experts: softmax over all experts, then the largest few. The order is total, NaN included, and equal
// logits are decided by the lower id. It must be the same on all engines, since another choice of experts is another answer.
#include "model/host/routes.h"
#include <algorithm>
#include <cmath>
#include <numeric>

namespace tq::host {
namespace {

// A NaN is before every number, so that the order is total.
bool is_before(std::span<const float> logits, uint32_t a, uint32_t b) {
    const bool nan_a = std::isnan(logits[a]), nan_b = std::isnan(logits[b]);
    if (nan_a || nan_b) return nan_a && (!nan_b || a < b);
    return logits[a] != logits[b] ? logits[a] > logits[b] : a < b;
}

} // namespace

void route(Routes& routes, std::span<const float> logits, uint32_t num_experts, uint32_t per_token, bool normalise) {
    const size_t tokens = logits.size() / num_experts;
    routes.ids.resize(tokens * per_token);
    routes.weights.resize(tokens * per_token);
    std::vector<uint32_t> order(num_experts);
    for (size_t t = 0; t < tokens; t++) {
        const auto of_token = logits.subspan(t * num_experts, num_experts);
        std::iota(order.begin(), order.end(), 0u);
        std::partial_sort(order.begin(), order.begin() + per_token, order.end(),
                          [&](uint32_t a, uint32_t b) { return is_before(of_token, a, b); });
        // exp(l - largest) is a weight but for the sum that all are divided by.
        const double largest = of_token[order[0]];
        double sum = 0;
        for (uint32_t i = 0; i < (normalise ? per_token : num_experts); i++) sum += std::exp(of_token[order[i]] - largest);
        for (uint32_t i = 0; i < per_token; i++) {
            routes.ids[t * per_token + i] = order[i];
            routes.weights[t * per_token + i] = float(std::exp(of_token[order[i]] - largest) / sum);
        }
    }
}

// A counting sort, stable, so that the pairs of one expert stay in the order of their tokens. Matrices of an expert are then
// multiplied once with all tokens that chose it.
ExpertGroups group_by_expert(std::span<const uint32_t> ids, uint32_t num_experts) {
    std::vector<uint32_t> next(num_experts + 1);
    for (const uint32_t id : ids) next[id + 1]++;
    std::partial_sum(next.begin(), next.end(), next.begin());
    ExpertGroups out;
    for (uint32_t e = 0; e < num_experts; e++)
        if (next[e] < next[e + 1]) out.groups.push_back({e, next[e], next[e + 1]});
    out.pairs.resize(ids.size());
    for (uint32_t pair = 0; pair < ids.size(); pair++) out.pairs[next[ids[pair]]++] = pair;
    return out;
}

} // namespace tq::host
