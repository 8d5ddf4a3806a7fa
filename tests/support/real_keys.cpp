#include "tests/support/real_keys.h"
#include "base/error.h"
#include "tools/check/conformance/vectors/random.h"
#include <cmath>
#include <numeric>

namespace tq::test {
namespace {

using Vector = std::vector<double>;

double dot(std::span<const double> a, std::span<const double> b) {
    return std::inner_product(a.begin(), a.end(), b.begin(), 0.0);
}

Vector normals(uint64_t seed, size_t count) {
    conformance::Random random{seed};
    const std::vector<float> x = random.normals(count);
    return {x.begin(), x.end()};
}

void make_rms_one(Vector& x) {
    const double rms = std::sqrt(dot(x, x) / double(x.size()));
    for (double& v : x) v /= rms;
}

// A matrix as heads of channels, which are counted as RoPE has them: channel i and i + head_dim / 2 are a pair.
class Heads {
  public:
    Heads(std::vector<float>& rows, const Config& c, bool neighbours) : rows_(rows), c_(c), neighbours_(neighbours) {}

    std::span<float> row(uint32_t head, uint32_t channel) const {
        const uint32_t half = c_.head_dim / 2, pair = channel % half, side = channel / half;
        const size_t at = size_t(head) * c_.head_dim + (neighbours_ ? 2 * pair + side : channel);
        return std::span(rows_).subspan(at * c_.hidden_size, c_.hidden_size);
    }
    // Returns what each channel of a head makes of x.
    Vector times(uint32_t head, std::span<const double> x) const {
        Vector out(c_.head_dim);
        for (uint32_t i = 0; i < c_.head_dim; i++) {
            const auto w = row(head, i);
            out[i] = std::inner_product(w.begin(), w.end(), x.begin(), 0.0);
        }
        return out;
    }
    void scale(uint32_t head, uint32_t channel, double factor) const {
        for (float& w : row(head, channel)) w = float(w * factor);
    }
    // Adds to a channel: then it makes `more` more of the direction x, whose rms is 1, and the same of what is orthogonal to it.
    void add(uint32_t head, uint32_t channel, std::span<const double> x, double more) const {
        const auto w = row(head, channel);
        for (size_t i = 0; i < w.size(); i++) w[i] = float(w[i] + more * x[i] / double(x.size()));
    }

  private:
    std::vector<float>& rows_;
    const Config& c_;
    const bool neighbours_;
};

// The change of a layer. Hidden states are (v + mean * m) / norm, v what varies, m their direction of the mean.
class LayerChange {
  public:
    LayerChange(const RealKeys& traits, const HiddenDirections& directions, const Config& config, const AttentionTensors& tensors)
        : t_(traits), x_(directions), c_(config), q_(tensors.q, config, tensors.neighbours),
          k_(tensors.k, config, tensors.neighbours), norm_(std::sqrt(1 + traits.mean * traits.mean)) {
        const uint32_t half = c_.head_dim / 2;
        double fourth_powers = 0;
        for (uint32_t i = 0; i < c_.head_dim; i++) {
            factors_.push_back(std::exp(t_.unequal * (double(i % half) / (half - 1) - 0.5)));
            fourth_powers += std::pow(factors_.back(), 4);
        }
        const double deviation = std::sqrt(fourth_powers / c_.head_dim) / (norm_ * norm_);
        for (double& f : factors_) f *= std::sqrt(t_.deviation / deviation);
    }

    void queries() const {
        for (uint32_t h = 0; h < c_.num_attention_heads; h++)
            for (uint32_t i = 0; i < c_.head_dim; i++) q_.scale(h, i, factors_[i]);
    }
    void keys(uint32_t head, std::vector<float>* bias, bool neighbours) const {
        for (uint32_t i = 0; i < c_.head_dim; i++) k_.scale(head, i, factors_[i]);
        const Vector mean = mean_query(head);
        attend_near(head, mean);
        attend_to_first(head, mean);
        if (!bias) return;
        const Vector draws = normals(t_.seed + 77 * head, c_.head_dim);
        for (uint32_t i = 0; i < c_.head_dim; i++) {
            const uint32_t half = c_.head_dim / 2, at = neighbours ? 2 * (i % half) + i / half : i;
            (*bias)[size_t(head) * c_.head_dim + at] = float(is_slow(i, 0.8) ? draws[i] * t_.bias * factors_[i] / norm_ : 0);
        }
    }

  private:
    bool is_slow(uint32_t channel, double from) const { return channel % (c_.head_dim / 2) >= from * c_.head_dim / 2; }
    // Whether the channel's pair turns once in 75 to 2500 positions.
    bool is_middle(uint32_t channel) const {
        const double turn = std::pow(double(c_.rope_theta), -double(channel % (c_.head_dim / 2)) / (c_.head_dim / 2.0));
        return turn > 1 / 400.0 && turn < 1 / 12.0;
    }
    // Returns the mean query of the heads of a kv head.
    Vector mean_query(uint32_t head) const {
        const uint32_t group = c_.num_attention_heads / c_.num_key_value_heads;
        Vector mean(c_.head_dim);
        for (uint32_t h = head * group; h < (head + 1) * group; h++) {
            const Vector of_head = q_.times(h, x_.mean);
            for (size_t i = 0; i < mean.size(); i++) mean[i] += of_head[i] * t_.mean / norm_ / group;
        }
        return mean;
    }
    // The mean key is along the mean query in pairs that turn at a middle speed: their product falls with the distance.
    void attend_near(uint32_t head, Vector query) const {
        for (uint32_t i = 0; i < c_.head_dim; i++) query[i] = is_middle(i) ? query[i] : 0;
        const double factor = t_.near_score * std::sqrt(c_.head_dim) / dot(query, query);
        const Vector mean = k_.times(head, x_.mean);
        for (uint32_t i = 0; i < c_.head_dim; i++)
            if (is_middle(i)) k_.add(head, i, x_.mean, query[i] * factor / (t_.mean / norm_) - mean[i]);
    }
    // The first token's key is along the mean query in slow pairs, whose product hardly depends on the distance.
    void attend_to_first(uint32_t head, Vector query) const {
        for (uint32_t i = 0; i < c_.head_dim; i++) query[i] = is_slow(i, 0.7) ? query[i] : 0;
        const double factor = t_.first_score * std::sqrt(c_.head_dim) / dot(query, query);
        const double share = t_.first / std::hypot(t_.mean, t_.first); // of its direction in the first token's hidden state
        const Vector own = k_.times(head, x_.first);
        for (uint32_t i = 0; i < c_.head_dim; i++) k_.add(head, i, x_.first, query[i] * factor / share - own[i]);
    }

    const RealKeys& t_;
    const HiddenDirections& x_;
    const Config& c_;
    const Heads q_, k_;
    const double norm_;
    Vector factors_; // of each channel, as RoPE counts them
};

} // namespace

HiddenDirections hidden_directions(const RealKeys& traits, uint32_t hidden_size) {
    HiddenDirections out{normals(traits.seed, hidden_size), normals(traits.seed + 1, hidden_size)};
    const double along = dot(out.first, out.mean) / dot(out.mean, out.mean);
    for (uint32_t i = 0; i < hidden_size; i++) out.first[i] -= along * out.mean[i];
    make_rms_one(out.mean);
    make_rms_one(out.first);
    return out;
}

void give_mean(const RealKeys& traits, const HiddenDirections& directions, std::span<float> embedding, uint32_t hidden_size) {
    const size_t tokens = embedding.size() / hidden_size;
    if (traits.first_token >= tokens) fail("there is no token {} among {}", traits.first_token, tokens);
    for (size_t i = 0; i < embedding.size(); i++) {
        const size_t at = i % hidden_size;
        const double own = i / hidden_size == traits.first_token ? traits.first * directions.first[at]
                                                                 : embedding[i] * std::sqrt(double(hidden_size));
        embedding[i] = float(own + traits.mean * directions.mean[at]);
    }
}

void give_real_keys(const RealKeys& traits, const HiddenDirections& directions, const Config& config, uint32_t layer,
                    const AttentionTensors& tensors) {
    RealKeys own = traits;
    own.seed += 1000 * (layer + 1);
    const LayerChange change(own, directions, config, tensors);
    change.queries();
    for (uint32_t head = 0; head < config.num_key_value_heads; head++) {
        change.keys(head, tensors.k_bias, tensors.neighbours);
        const Heads values(tensors.v, config, false);
        for (const auto* direction : {&directions.mean, &directions.first}) { // values have no such means
            const Vector there = values.times(head, *direction);
            for (uint32_t i = 0; i < config.head_dim; i++) values.add(head, i, *direction, -there[i]);
        }
    }
}

} // namespace tq::test
