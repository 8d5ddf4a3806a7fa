// Statistics of two distributions over the vocabulary, token by token, in double. The KL divergence is sum q (log q - log p) with
// q the reference, computed from log-sum-exp with the maximum taken out; rounding can make it slightly negative, so it is at
// least 0. Errors are standard errors of means, as if tokens were independent. The change of loss is a mean of paired
// differences, so its error is far smaller than that of either perplexity.
#include "tools/check/quality/divergence.h"
#include "base/ensure.h"
#include "base/statistics.h"
#include <algorithm>
#include <cmath>

namespace tq::quality {
namespace {

// log of the sum of exp(logits)
double log_sum(std::span<const float> logits) {
    const double max = logits[argmax(logits)];
    double sum = 0;
    for (const float l : logits) sum += std::exp(double(l) - max);
    return max + std::log(sum);
}

// The mean of `value` over the tokens.
template <class Value> Estimate mean(std::span<const Divergence> tokens, Value value) {
    std::vector<double> values;
    for (const Divergence& d : tokens) values.push_back(value(d));
    return quality::mean(values);
}

Estimate exponential(const Estimate& e) { return {std::exp(e.value), std::exp(e.value) * e.error}; }

// The smallest value that at least a share of them does not exceed: nearest rank.
double quantile(std::span<const double> sorted, double share) {
    const auto rank = size_t(std::ceil(share * double(sorted.size())));
    return sorted[std::clamp<size_t>(rank, 1, sorted.size()) - 1];
}

} // namespace

double loss(std::span<const float> logits, uint32_t next) {
    ENSURE(next < logits.size(), "token {} of {}", next, logits.size());
    return log_sum(logits) - logits[next];
}

Estimate mean(std::span<const double> values) {
    if (values.empty()) return {};
    double sum = 0, squares = 0;
    for (const double v : values) sum += v;
    const auto n = double(values.size());
    const double mean = sum / n;
    for (const double v : values) squares += (v - mean) * (v - mean);
    return {mean, values.size() < 2 ? 0 : std::sqrt(squares / (n - 1) / n)};
}

Divergence divergence(std::span<const float> logits, std::span<const float> reference, uint32_t next) {
    ENSURE(logits.size() == reference.size() && next < logits.size(), "{} and {} logits, token {}", logits.size(),
           reference.size(), next);
    const double sum = log_sum(logits), reference_sum = log_sum(reference);
    double kl = 0;
    for (size_t i = 0; i < logits.size(); i++) {
        const double log_p = logits[i] - sum, log_q = reference[i] - reference_sum;
        kl += std::exp(log_q) * (log_q - log_p);
    }
    return {sum - logits[next], reference_sum - reference[next], std::max(kl, 0.0), argmax(logits) == argmax(reference)};
}

Summary summarise(std::span<const Divergence> tokens) {
    if (tokens.empty()) return {};
    std::vector<double> kl;
    for (const Divergence& d : tokens) kl.push_back(d.kl);
    std::ranges::sort(kl);
    return {.tokens = tokens.size(),
            .perplexity = exponential(mean(tokens, [](const Divergence& d) { return d.loss; })),
            .reference_perplexity = exponential(mean(tokens, [](const Divergence& d) { return d.reference_loss; })),
            .loss_change = mean(tokens, [](const Divergence& d) { return d.loss - d.reference_loss; }),
            .kl = mean(tokens, [](const Divergence& d) { return d.kl; }),
            .same_top = mean(tokens, [](const Divergence& d) { return d.same_top ? 1.0 : 0.0; }),
            .kl_median = quantile(kl, 0.5),
            .kl_99 = quantile(kl, 0.99),
            .kl_max = kl.back()};
}

} // namespace tq::quality
