#include "model/engine/serving/logprobs.h"
#include <algorithm>
#include <cmath>
#include <numeric>

namespace tq::serving {

Token with_logprobs(uint32_t id, std::span<const float> logits, uint32_t top) {
    const float max_logit = *std::ranges::max_element(logits);
    double sum = 0;
    for (const float logit : logits) sum += std::exp(double(logit) - max_logit);
    const double log_sum = max_logit + std::log(sum);
    const auto logprob = [&](uint32_t i) { return float(logits[i] - log_sum); };
    Token token{id, logprob(id), {}};
    std::vector<uint32_t> ids(logits.size());
    std::iota(ids.begin(), ids.end(), 0u);
    const size_t count = std::min<size_t>(top, ids.size());
    std::partial_sort(ids.begin(), ids.begin() + ptrdiff_t(count), ids.end(),
                      [&](uint32_t a, uint32_t b) { return logits[a] != logits[b] ? logits[a] > logits[b] : a < b; });
    for (size_t i = 0; i < count; i++) token.top.emplace_back(ids[i], logprob(ids[i]));
    return token;
}

} // namespace tq::serving
