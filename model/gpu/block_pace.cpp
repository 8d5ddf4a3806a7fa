// The time of a block is predicted from one number, the operations per second of its products, which each block corrects
// (ran()). Attention counts as four times its operations, because it reaches about a quarter of that rate. Products and
// attention may each take half of the limit for a layer. Fewer tokens than a tile take as long as a tile.
// The rate falls at once if a block was slower than predicted, because too long a dispatch may lose the device. It rises at
// most fourfold with each block, because one fast block says little. Before the first block, a slow device of the type is
// assumed.
#include "model/gpu/block_pace.h"
#include "base/ensure.h"
#include "model/gpu/matmul.h"
#include <algorithm>
#include <cmath>
#include <limits>

namespace tq::gpu {
namespace {

// Attention performs about a quarter of the operations per second of matrix products.
constexpr double attention_cost = 4;
constexpr double max_speedup = 4;

// Returns the operations per second of products on a slow device.
double assumed_rate(DeviceType type) { return type == DeviceType::discrete ? 2e12 : 1e11; }

uint32_t tokens_of_tile(const Tuning& t) {
#if TQ_COOPERATIVE_MATRIX
    if (t.matmul_coopmat) return coopmat_tile(t).tokens;
#endif
    if (t.matmul_dot) return matmul_dot_tile(t).tokens;
    return t.matmul_tiled ? matmul_tiled_tile(t).tokens : t.matmul_tokens;
}

double products_of_layer(const Config& c) {
    const double heads = 2.0 * c.num_attention_heads + 2.0 * c.num_key_value_heads;
    return 2.0 * c.hidden_size * (heads * c.head_dim + 3.0 * c.intermediate_size);
}

// Converts to an integer from 1 to `max`; `tokens` may be any number.
uint32_t whole(double tokens, uint32_t max) { return tokens >= max ? max : tokens >= 1 ? uint32_t(tokens) : 1; }

} // namespace

double max_layer_seconds(DeviceType type) {
    if (type == DeviceType::cpu) return std::numeric_limits<double>::infinity();
    return type == DeviceType::discrete ? 0.25 : 0.03;
}

BlockPace::BlockPace(DeviceType type, const Config& config, const Tuning& tuning, double layer_seconds)
    : layer_seconds_(layer_seconds), layers_(config.num_hidden_layers), token_products_(products_of_layer(config)),
      pair_attention_(attention_cost * 4 * config.num_attention_heads * config.head_dim), tile_(tokens_of_tile(tuning)),
      rate_(assumed_rate(type)) {
    ENSURE(layer_seconds > 0, "{} seconds", layer_seconds);
}

double BlockPace::products(uint32_t tokens) const { return token_products_ * std::max(tokens, tile_); }

double BlockPace::attention(uint32_t position, uint32_t tokens) const {
    return pair_attention_ * tokens * (double(position) + tokens);
}

// Products and attention may each take half of the time. The time of one tile's products is the minimum.
uint32_t BlockPace::next(uint32_t position, uint32_t max) const {
    ENSURE(max > 0, "no tokens");
    const double half = layer_seconds_ / 2 * rate_;
    uint32_t tokens = whole(std::max(half / token_products_, double(tile_)), max);
    if (attention(position, tokens) > half) { // the positive root of tokens^2 + position tokens = half / pair_attention_
        const double middle = position / 2.0;
        tokens = whole(half / pair_attention_ / (middle + std::sqrt(middle * middle + half / pair_attention_)), tokens);
    }
    return std::max(tokens, std::min(max, 2u));
}

void BlockPace::ran(uint32_t position, uint32_t tokens, double seconds) {
    if (!std::isfinite(seconds)) return;
    const double operations = layers_ * (products(tokens) + attention(position, tokens));
    rate_ = std::min(max_speedup * rate_, operations / std::max(seconds, 1e-9));
}

} // namespace tq::gpu
