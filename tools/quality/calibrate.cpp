#include "tools/quality/calibrate.h"
#include "base/ensure.h"
#include "model/files/calibration.h"
#include "model/rope.h"
#include <algorithm>
#include <cmath>

namespace tq::quality {
namespace {

// A channel below this share of the root mean square of its head's channels counts as zero: where keys never change, or
// queries are zero.
constexpr double min_share = 1e-6;

double rms_of(std::span<const double> values) {
    double sum = 0;
    for (const double v : values) sum += v * v;
    return std::sqrt(sum / double(values.size()));
}

// Returns sqrt(k / q) of each channel, none of which is zero beside the others; 1 where all channels are zero.
std::vector<float> balanced(std::span<const double> k, std::span<const double> q) {
    const double min_k = rms_of(k) * min_share, min_q = rms_of(q) * min_share;
    std::vector<float> out(k.size(), 1.0f);
    if (!(min_k > 0) || !(min_q > 0)) return out;
    for (size_t c = 0; c < k.size(); c++) {
        const double g = std::sqrt(std::max(k[c], min_k) / std::max(q[c], min_q));
        out[c] = float(std::clamp(g, double(min_key_scale), double(max_key_scale)));
    }
    return out;
}

} // namespace

KeyStatistics::KeyStatistics(const Config& config, const Weights& weights, uint32_t positions)
    : config_(config), rope_(rope_table(config, positions)),
      channels_(size_t(config.num_hidden_layers) * config.num_key_value_heads * config.head_dim),
      positions_(config.num_hidden_layers) {
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

// The k-norm and RoPE of model/reference/kernels.cpp, in double.
void KeyStatistics::add_keys(uint32_t layer, std::span<const float> k) {
    const size_t d = config_.head_dim, half = d / 2, heads = config_.num_key_value_heads;
    const std::vector<float>& w = k_norms_[layer];
    for (size_t at = 0; at < k.size(); at += d) {
        const size_t head = at / d % heads, position = positions_[layer] + at / d / heads;
        ENSURE((position + 1) * d <= rope_.size(), "position {}", position);
        double squares = 0;
        for (size_t i = 0; i < d; i++) squares += double(k[at + i]) * k[at + i];
        const auto eps = config_.head_norm_eps();
        const double scale = eps ? 1 / std::sqrt(squares / double(d) + double(*eps)) : 1;
        Channel* channel = &channels_[(layer * heads + head) * d];
        for (size_t i = 0; i < half; i++) {
            const double a = k[at + i] * scale * w[i], b = k[at + i + half] * scale * w[i + half];
            const double cosine = rope_[position * d + 2 * i], sine = rope_[position * d + 2 * i + 1];
            for (const auto& [c, value] : {std::pair(i, a * cosine - b * sine), {i + half, b * cosine + a * sine}}) {
                channel[c].k += value;
                channel[c].k_squares += value * value;
            }
        }
    }
    positions_[layer] += uint32_t(k.size() / d / heads);
    if (layer == 0) tokens_ += k.size() / d / heads;
}

void KeyStatistics::add_queries(uint32_t layer, std::span<const float> q) {
    const size_t d = config_.head_dim, heads = config_.num_attention_heads, group = heads / config_.num_key_value_heads;
    for (size_t i = 0; i < q.size(); i++) {
        Channel& channel = channels_[(layer * config_.num_key_value_heads + i / d % heads / group) * d + i % d];
        channel.q_squares += double(q[i]) * q[i] * double(d); // taps get q / sqrt(d)
    }
}

KeyCalibration KeyStatistics::calibration(CalibrationParts parts) const {
    ENSURE(tokens_ > 0);
    const size_t d = config_.head_dim, group = config_.num_attention_heads / config_.num_key_value_heads;
    KeyCalibration out{config_.num_hidden_layers, config_.num_key_value_heads, config_.head_dim, {}, {}};
    for (size_t first = 0; first < channels_.size(); first += d) {
        std::vector<double> k, q;
        for (const Channel& c : std::span(channels_).subspan(first, d)) {
            const double mean = parts == CalibrationParts::scales ? 0 : c.k / double(tokens_);
            out.means.push_back(float(mean));
            k.push_back(std::sqrt(std::max(0.0, c.k_squares / double(tokens_) - mean * mean)));
            q.push_back(std::sqrt(c.q_squares / double(tokens_ * group)));
        }
        const std::vector<float> scales = parts == CalibrationParts::means ? std::vector<float>(d, 1.0f) : balanced(k, q);
        out.scales.insert(out.scales.end(), scales.begin(), scales.end());
    }
    return out;
}

} // namespace tq::quality
