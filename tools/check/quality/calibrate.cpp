// Statistics of keys and queries, and the calibration that follows from them. Sums are in double and by channel; the first tokens
// of a text are left out, because they are stored exactly and their keys are unlike all others.
// Means: the part of a key that all tokens share costs code levels and tells them not apart. A key is turned by its position, so
// the mean that can be left out is that of the unturned key, and rope_mean gives what remains of it over positions.
// Scales: dividing channel i of keys by g_i and multiplying it in queries leaves scores as they are. After the rotation every
// channel has the same error, which grows with the norm of k / g, and the error of a score grows with that times the norm of q g.
// The product of the two norms is least if k^2 / g^2 is proportional to q^2 g^2 (Cauchy and Schwarz), so g^4 = E[k^2] / E[q^2],
// for each pair, since RoPE mixes the two channels of a pair.
// Scales are rounded to quarters of octaves, and means to steps of a sixteenth, so that machines that round differently mostly
// find the same calibration.
#include "tools/check/quality/calibrate.h"
#include "base/ensure.h"
#include "model/files/calibration.h"
#include "model/rope.h"
#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

namespace tq::quality {
namespace {

// Squares below this share of the mean of their head's count as that: if keys never change, or queries are zero.
constexpr double min_share = 1e-12;

// Means are multiples of 1 / 16 of the power of two at or below the rest of the keys, so that machines which round
// differently mostly find the same; their error is a thousandth of the rest.
constexpr int mean_steps = 4;

constexpr int scale_steps = 4; // of a factor of two
constexpr std::array roots{1.0f, 1.18920708f, 1.41421354f, 1.68179286f};

double rounded(double mean, double left) {
    if (!(left > 0)) return mean;
    const double step = std::ldexp(1.0, std::ilogb(left) - mean_steps);
    return std::nearbyint(mean / step) * step;
}

// Returns g of each pair, where g^4 = k / q, squares that are not zero beside those of other pairs: 2^(n / 4), n the integer next
// to the logarithm over its mean. 1 if all pairs are zero.
std::vector<float> balanced(std::span<const double> k, std::span<const double> q) {
    const auto floor_of = [](std::span<const double> x) {
        return std::accumulate(x.begin(), x.end(), 0.0) / double(x.size()) * min_share;
    };
    const double min_k = floor_of(k), min_q = floor_of(q);
    std::vector<float> out(k.size(), 1.0f);
    if (!(min_k > 0) || !(min_q > 0)) return out;
    std::vector<double> logarithms;
    for (size_t i = 0; i < k.size(); i++) logarithms.push_back(std::log2(std::max(k[i], min_k) / std::max(q[i], min_q)) / 4);
    const double mean = std::accumulate(logarithms.begin(), logarithms.end(), 0.0) / double(k.size());
    for (size_t i = 0; i < k.size(); i++) {
        const int n = int(std::lround((logarithms[i] - mean) * scale_steps)), octave = n >> 2;
        out[i] = std::clamp(std::ldexp(roots[size_t(n - octave * scale_steps)], octave), min_key_scale, max_key_scale);
    }
    return out;
}

} // namespace

KeyStatistics::KeyStatistics(const Config& config, const Weights& weights)
    : config_(config), channels_(size_t(config.num_hidden_layers) * config.num_key_value_heads * config.head_dim),
      next_(config.num_hidden_layers) {
    while (config.is_recurrent(first_)) first_++;
    for (const LayerWeights& w : weights.layers) k_norms_.push_back(head_norm_weights(w.attn_k_norm, config.head_dim));
}

Tap KeyStatistics::tap() {
    return [this](std::string_view name, std::span<const float> values) {
        for (uint32_t layer = 0; name.starts_with("layer ") && layer < config_.num_hidden_layers; layer++) {
            if (name == fmt::format("layer {} k", layer)) return add_keys(layer, values);
            if (name == fmt::format("layer {} q", layer)) return add_queries(layer, values);
        }
    };
}

// The k-norm of model/reference/kernels.cpp, in double.
void KeyStatistics::add_keys(uint32_t layer, std::span<const float> k) {
    const size_t d = config_.head_dim, heads = config_.num_key_value_heads;
    const std::vector<float>& w = k_norms_[layer];
    const auto eps = config_.head_norm_eps();
    for (size_t at = 0; at < k.size(); at += d) {
        if (at % (heads * d) == 0 && next_[layer].key++ >= left_out_tokens && layer == first_) tokens_++;
        if (next_[layer].key <= left_out_tokens) continue;
        double squares = 0;
        for (size_t i = 0; i < d; i++) squares += double(k[at + i]) * k[at + i];
        const double scale = eps ? 1 / std::sqrt(squares / double(d) + double(*eps)) : 1;
        Channel* channel = &channels_[(layer * heads + at / d % heads) * d];
        for (size_t i = 0; i < d; i++) {
            const double value = k[at + i] * scale * w[i];
            channel[i].k += value;
            channel[i].k_squares += value * value;
        }
    }
}

void KeyStatistics::add_queries(uint32_t layer, std::span<const float> q) {
    const size_t d = config_.head_dim, heads = config_.num_attention_heads, group = heads / config_.num_key_value_heads;
    for (size_t i = 0; i < q.size(); i++) {
        if (i % (heads * d) == 0) next_[layer].query++;
        if (next_[layer].query <= left_out_tokens) continue;
        Channel& channel = channels_[(layer * config_.num_key_value_heads + i / d % heads / group) * d + i % d];
        channel.q_squares += double(q[i]) * q[i] * double(d); // taps get q / sqrt(d)
    }
}

// For each pair of channels that RoPE turns, and for each other channel, `left` is the variance of keys about the mean that is
// left out, and `queries` the mean square of queries. balanced() makes the scales from both, and means are rounded in proportion
// to `left`. CalibrationParts::scales leaves the means at 0, CalibrationParts::means the scales at 1.
KeyCalibration KeyStatistics::calibration(CalibrationParts parts) const {
    ENSURE(tokens_ > 0);
    const size_t d = config_.head_dim, rotary = config_.rotary(), half = rotary / 2,
                 group = config_.num_attention_heads / config_.num_key_value_heads;
    const double turned = std::pow(attention_factor(config_.rope_scaling), 2), tokens = double(tokens_);
    std::vector<float> keys;
    for (const Channel& c : channels_) keys.push_back(parts == CalibrationParts::scales ? 0.0f : float(c.k / tokens));
    KeyCalibration out{
        config_.num_hidden_layers, config_.num_key_value_heads, config_.head_dim, {}, rope_mean(config_, keys, mean_positions)};
    out.scales.assign(channels_.size(), 1.0f);
    // Mean squares of pairs of channels, then of the channels that RoPE does not turn.
    std::vector<double> left(d - half), queries(d - half);
    for (size_t first = 0; first < channels_.size(); first += d) {
        const auto channels_of = [&](size_t i) {
            return i < half ? std::vector{first + i, first + i + half} : std::vector{first + half + i};
        };
        for (size_t i = 0; i < left.size(); i++) {
            left[i] = queries[i] = 0;
            const std::vector<size_t> channels = channels_of(i);
            for (const size_t at : channels) {
                left[i] += channels_[at].k_squares / tokens - double(out.means[at]) * out.means[at];
                queries[i] += channels_[at].q_squares / (tokens * double(group));
            }
            for (const size_t at : channels)
                out.means[at] = float(rounded(out.means[at], std::sqrt(std::max(left[i], 0.0) / double(channels.size()))));
            if (i < half) left[i] *= turned; // which the means lack
        }
        if (parts == CalibrationParts::means) continue;
        const std::vector<float> scales = balanced(left, queries);
        for (size_t i = 0; i < scales.size(); i++)
            for (const size_t at : channels_of(i)) out.scales[at] = scales[i];
    }
    return out;
}

} // namespace tq::quality
