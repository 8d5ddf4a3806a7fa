// KVarN, from its description: Huawei's KVarN, tiles of 128 tokens by 128 channels.
#include "tools/page_lab/leaves.h"
#include "tools/page_lab/transforms.h"
#include <algorithm>
#include <cmath>

namespace tq::page_lab {
namespace {

constexpr int sinkhorn_steps = 16;

// The standard deviation of count numbers, `stride` apart, times the exponentials of -other.
double deviation(const float* x, size_t count, size_t stride, std::span<const double> other) {
    double sum = 0, squares = 0;
    for (size_t i = 0; i < count; i++) {
        const double v = x[i * stride] * std::exp(-other[i]);
        sum += v;
        squares += v * v;
    }
    const double mean = sum / double(count);
    return std::sqrt(std::max(squares / double(count) - mean * mean, 1e-20));
}

// Divides by the gains of tokens and channels, which Sinkhorn's steps on logarithms balance, and codes the rest.
class Balanced final : public TileCodec {
  public:
    explicit Balanced(uint32_t bits) : for_keys_(round_to_nearest(bits, true)), for_values_(round_to_nearest(bits, false)) {}

    double code(std::span<float> y, const Tile& tile) const override {
        std::vector<double> token(tile.tokens, 0.0), channel(tile.dim, 0.0); // logarithms
        for (int step = 0; step < sinkhorn_steps; step++) {
            for (size_t t = 0; t < tile.tokens; t++) token[t] = std::log(deviation(&tile.x[t * tile.dim], tile.dim, 1, channel));
            for (size_t c = 0; c < tile.dim; c++) channel[c] = std::log(deviation(&tile.x[c], tile.tokens, tile.dim, token));
        }
        std::vector<float> rest(y.size()), gains(y.size());
        for (size_t i = 0; i < y.size(); i++) {
            gains[i] = stored_half(float(std::exp(channel[i % tile.dim]))) * stored_half(float(std::exp(token[i / tile.dim])));
            rest[i] = tile.x[i] / gains[i];
        }
        Tile inside = tile;
        inside.x = rest;
        const bool keys = tile.side == KvSide::key;
        const double bits = (keys ? for_keys_ : for_values_)->code(y, inside);
        for (size_t i = 0; i < y.size(); i++) y[i] *= gains[i];
        // The gains of the side that has scale and zero are multiplied into these, so that only the others are stored.
        return bits + 16.0 * double(keys ? tile.tokens : tile.dim);
    }

  private:
    const TileCodecPtr for_keys_, for_values_;
};

} // namespace

TileCodecPtr kvarn(uint32_t bits) { return rotated(std::make_unique<Balanced>(bits)); }

} // namespace tq::page_lab
