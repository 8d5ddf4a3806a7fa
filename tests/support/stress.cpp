// Makes keys and values harder to store without changing what a model computes with exact ones: channels of different sizes,
// tokens of different sizes, heavy tails, sinks, and a bias of keys. A change is a factor and an offset for each channel that
// follow from seed, side, layer, head and position alone, so apply() before storing and undo() after reading agree without any
// memory. The bias of a key is turned by RoPE as a real one would be: it is a vector before RoPE, turned by the position's
// angles.
#include "tests/support/stress.h"
#include "base/ensure.h"
#include "base/error.h"
#include "base/splitmix64.h"
#include "model/rope.h"
#include <algorithm>
#include <cmath>

namespace tq::quality {
namespace {

// Normal numbers by Box and Muller.
class Normals {
  public:
    explicit Normals(uint64_t seed) : state_(seed) {}

    double next() {
        const double radius = std::sqrt(-2 * std::log(uniform()));
        return radius * std::cos(2 * 3.14159265358979323846 * uniform());
    }
    // Returns a number of the chi-squared distribution, over its degrees of freedom.
    double mean_square(uint32_t dof) {
        double logarithms = 0; // two squares of normal numbers are -2 log of one uniform one
        for (uint32_t i = 0; i < dof / 2; i++) logarithms += std::log(uniform());
        const double rest = dof % 2 != 0 ? next() : 0;
        return (rest * rest - 2 * logarithms) / dof;
    }

  private:
    double uniform() { return (double(splitmix64(state_) >> 11) + 0.5) * 0x1p-53; }

    uint64_t state_;
};

constexpr uint64_t of_channels = UINT64_MAX, of_bias = UINT64_MAX - 1; // others are positions

double rms(std::span<const float> x) {
    double squares = 0;
    for (const float v : x) squares += double(v) * v;
    return std::sqrt(squares / double(x.size()));
}

} // namespace

StressedVectors::StressedVectors(const Stress& stress, const Config& c, const Weights& weights, uint32_t positions)
    : stress_(stress), head_dim_(c.head_dim), rotary_(c.rotary()), kv_heads_(c.num_key_value_heads),
      rope_(rope_table(c, positions)) {
    for (const uint32_t layer : stress.layers)
        if (layer >= c.num_hidden_layers) fail("there is no layer {} among {}", layer, c.num_hidden_layers);
    if (!(stress.sink_factor > 0) || !std::isfinite(stress.sink_factor))
        fail("a factor must be above 0 and finite, not {}", stress.sink_factor);
    for (const float v : {stress.channel_spread, stress.token_spread, stress.key_bias})
        if (!(v >= 0 && v <= 1000)) fail("a spread or bias must be from 0 to 1000, not {}", v);
    for (const LayerWeights& w : weights.layers) key_rms_.push_back(rms(head_norm_weights(w.attn_k_norm, c.head_dim)));
}

bool StressedVectors::chosen(uint32_t layer) const {
    return stress_.layers.empty() || std::ranges::count(stress_.layers, layer) > 0;
}

// Each part is mixed in before the next one, so that (layer 1, head 2) and (layer 2, head 1) have nothing in common.
uint64_t StressedVectors::seed_of(KvSide side, uint32_t layer, uint32_t kv_head, uint64_t what) const {
    uint64_t state = stress_.seed;
    for (const uint64_t part : {uint64_t(side == KvSide::key), uint64_t(layer), uint64_t(kv_head), what}) {
        state ^= part;
        state = splitmix64(state);
    }
    return state;
}

// A heavy-tailed channel is a normal number over the root of a mean square: Student's t distribution with `heavy_tails` degrees
// of freedom, one draw for each channel of each token. The bias is given before RoPE and turned as the key is, so that the offset
// rotates with the position as in models with a bias of keys.
StressedVectors::Change StressedVectors::change(KvSide side, uint32_t layer, uint32_t kv_head, uint32_t position) const {
    Change out{factors_of_head(side, layer, kv_head), std::vector(head_dim_, 0.0)};
    Normals of_token(seed_of(side, layer, kv_head, position));
    const double by_token =
        std::exp(stress_.token_spread * of_token.next()) * (position < stress_.sinks ? stress_.sink_factor : 1);
    for (double& f : out.factors) {
        f = by_token * f;
        if (stress_.heavy_tails > 0) f /= std::sqrt(of_token.mean_square(stress_.heavy_tails));
    }
    if (side == KvSide::value || stress_.key_bias == 0) return out;
    const std::vector<float> b = key_bias(layer);
    const float* own = &b[size_t(kv_head) * head_dim_];
    const uint32_t half = rotary_ / 2;
    for (uint32_t i = rotary_; i < head_dim_; i++) out.offsets[i] = double(own[i]);
    for (uint32_t i = 0; i < half; i++) {
        const float* turn = &rope_[(size_t(position) * half + i) * 2];
        out.offsets[i] = double(own[i]) * turn[0] - double(own[i + half]) * turn[1];
        out.offsets[i + half] = double(own[i + half]) * turn[0] + double(own[i]) * turn[1];
    }
    return out;
}

std::vector<double> StressedVectors::factors_of_head(KvSide side, uint32_t layer, uint32_t kv_head) const {
    std::vector<double> out(head_dim_);
    Normals normals(seed_of(side, layer, kv_head, of_channels));
    for (double& f : out) f = std::exp(stress_.channel_spread * normals.next());
    return out;
}

std::vector<double> StressedVectors::channel_factors(KvSide side, uint32_t layer) const {
    std::vector<double> out;
    for (uint32_t head = 0; head < kv_heads_; head++)
        for (const double f : factors_of_head(side, layer, head)) out.push_back(chosen(layer) ? f : 1);
    return out;
}

std::vector<float> StressedVectors::key_bias(uint32_t layer) const {
    std::vector<float> b;
    for (uint32_t head = 0; head < kv_heads_; head++) {
        Normals of_keys(seed_of(KvSide::key, layer, head, of_bias));
        for (uint32_t c = 0; c < head_dim_; c++)
            b.push_back(chosen(layer) ? float(stress_.key_bias * key_rms_[layer] * of_keys.next()) : 0);
    }
    return b;
}

// Calls body(vector, change) for each vector of a chosen layer.
template <class F>
void StressedVectors::each_vector(std::span<float> x, KvSide side, uint32_t layer, uint32_t first, F body) const {
    const size_t heads = kv_heads_, tokens = x.size() / head_dim_ / heads;
    ENSURE(x.size() == tokens * heads * head_dim_ && layer < key_rms_.size() && (first + tokens) * rotary_ <= rope_.size(),
           "{} elements from position {} on, layer {}", x.size(), first, layer);
    if (!chosen(layer)) return;
    for (size_t i = 0; i < tokens * heads; i++)
        body(x.subspan(i * head_dim_, head_dim_), change(side, layer, uint32_t(i % heads), first + uint32_t(i / heads)));
}

void StressedVectors::apply(std::span<float> all, KvSide side, uint32_t layer, uint32_t first) const {
    each_vector(all, side, layer, first, [](std::span<float> x, const Change& by) {
        for (size_t c = 0; c < x.size(); c++) x[c] = float(x[c] * by.factors[c] + by.offsets[c]);
    });
}

void StressedVectors::undo(std::span<float> all, KvSide side, uint32_t layer, uint32_t first) const {
    each_vector(all, side, layer, first, [](std::span<float> x, const Change& by) {
        for (size_t c = 0; c < x.size(); c++) x[c] = float((x[c] - by.offsets[c]) / by.factors[c]);
    });
}

} // namespace tq::quality
