// Rotary position embedding. Pair i of a head turns by theta^(-2 i / d) for each position. Scaling changes that: linear divides
// all frequencies by the factor; YaRN (Peng et al. 2023) divides the slow ones, keeps the fast ones, and blends between two pairs
// that follow from how often a pair turns within the original context; Llama 3 has a factor for each pair.
// Angles are computed in double and rounded once, when they are cosine and sine. In fp32 the angle itself would be off at long
// contexts: 100,000 has an error of 0.004. Both engines and all devices use this table, [position][pair][cos, sin], so positions
// are equal bit for bit.
#include "model/rope.h"
#include <algorithm>
#include <cmath>
#include <complex>
#include <numbers>

namespace tq {

YarnRange yarn_range(const Config& config) {
    const RopeScaling& scaling = config.rope_scaling;
    const double d = config.rotary();
    const auto pair = [&](float turns) {
        return d * std::log(scaling.original_context_length / (2 * std::numbers::pi * double(turns))) /
               (2 * std::log(double(config.rope_theta)));
    };
    return {std::clamp(std::floor(pair(scaling.beta_fast)), 0.0, d - 1),
            std::clamp(std::ceil(pair(scaling.beta_slow)), 0.0, d - 1)};
}

double rope_frequency(const Config& config, uint32_t pair) {
    const RopeScaling& scaling = config.rope_scaling;
    const double own = config.rope_factors.empty() ? 1 : double(config.rope_factors.at(pair)),
                 f = std::pow(double(config.rope_theta), -2.0 * pair / config.rotary()) / own,
                 stretched = f / double(scaling.factor);
    if (scaling.type == RopeScalingType::none) return f;
    if (scaling.type == RopeScalingType::linear) return stretched;
    const auto [low, high] = yarn_range(config);
    const double ramp = std::clamp((pair - low) / std::max(high - low, 0.001), 0.0, 1.0);
    return stretched * ramp + f * (1 - ramp);
}

std::vector<float> llama3_factors(const Llama3Rope& scaling, float rope_theta, uint32_t head_dim) {
    std::vector<float> factors;
    for (uint32_t pair = 0; pair < head_dim / 2; pair++) {
        const double frequency = std::pow(double(rope_theta), -2.0 * pair / head_dim),
                     turns = scaling.original_context_length * frequency / (2 * std::numbers::pi),
                     s = std::clamp((turns - scaling.low_freq_factor) / (scaling.high_freq_factor - scaling.low_freq_factor), 0.0,
                                    1.0);
        factors.push_back(float(1 / ((1 - s) / scaling.factor + s)));
    }
    return factors;
}

double attention_factor(const RopeScaling& scaling) {
    const double yarn = scaling.type == RopeScalingType::yarn ? 0.1 * std::log(double(scaling.factor)) + 1 : 1;
    return yarn * double(scaling.attn_factor);
}

std::vector<float> rope_table(const Config& config, uint32_t positions) {
    const uint32_t pairs = config.rotary() / 2;
    std::vector<float> table(size_t(positions) * pairs * 2);
    const double scale = attention_factor(config.rope_scaling);
    for (uint32_t i = 0; i < pairs; i++) {
        const double frequency = rope_frequency(config, i);
        for (uint32_t p = 0; p < positions; p++) {
            table[(size_t(p) * pairs + i) * 2] = float(scale * std::cos(p * frequency));
            table[(size_t(p) * pairs + i) * 2 + 1] = float(scale * std::sin(p * frequency));
        }
    }
    return table;
}

std::vector<float> rope_mean(const Config& config, std::span<const float> x, uint32_t positions) {
    const size_t d = config.head_dim, half = config.rotary() / 2;
    std::vector<float> out(x.begin(), x.end());
    for (size_t i = 0; i < half; i++) {
        const double frequency = rope_frequency(config, uint32_t(i));
        // The mean of exp(i p f), a geometric series.
        const auto turn = [&](double p) { return std::polar(1.0, p * frequency); };
        const std::complex<double> mean = (1.0 - turn(positions)) / (1.0 - turn(1)) / double(positions);
        for (size_t head = 0; head < x.size(); head += d) {
            const std::complex<double> turned = mean * std::complex<double>(x[head + i], x[head + i + half]);
            out[head + i] = float(turned.real());
            out[head + i + half] = float(turned.imag());
        }
    }
    return out;
}

} // namespace tq
