#include "tools/page_lab/leaves.h"
#include "base/half.h"
#include "model/kv/codec.h"
#include "model/kv/options.h"
#include "model/kv/turboquant.h"
#include "tools/page_lab/levels.h"
#include <algorithm>
#include <cmath>

namespace tq::page_lab {

float stored_half(float x) { return half_to_float(float_to_half(x)); }

namespace {

class TokenCodec final : public TileCodec {
  public:
    TokenCodec(KvType type, bool levels_only) : type_(type), levels_only_(levels_only) {}

    double code(std::span<float> y, const Tile& tile) const override {
        const KvOptions options{type_, type_};
        const KvCodec codec = options.codec(tile.layer, tile.layers, tile.side, uint32_t(tile.dim));
        std::vector<uint32_t> words(std::max<size_t>(codec.words(), tile.dim));
        std::vector<uint16_t> scales(codec.scales());
        for (size_t at = 0; at < tile.x.size(); at += tile.dim) {
            const std::span from = tile.x.subspan(at, tile.dim);
            const std::span to = y.subspan(at, tile.dim);
            if (levels_only_) {
                code_levels(to, from, words, scales);
            } else {
                encode(codec, std::span(words).first(codec.words()), scales, from);
                decode(codec, to, std::span(words).first(codec.words()), scales);
            }
        }
        return 8.0 * kv_vector_bytes(type_, uint32_t(tile.dim)) * double(tile.tokens);
    }

  private:
    void code_levels(std::span<float> y, std::span<const float> x, std::vector<uint32_t>& codes,
                     std::vector<uint16_t>& scales) const {
        std::vector<float> normal(x.begin(), x.end());
        float largest = 0;
        for (float& v : normal) {
            if (std::fabs(v) < 1e-12f) v = 0;
            largest = std::max(largest, std::fabs(v));
        }
        if (largest == 0) {
            std::ranges::fill(y, 0.0f);
            return;
        }
        encode_turboquant(type_, ScaleRule::unbiased, {}, std::span(codes).first(x.size()), scales, normal, 0);
        decode_turboquant(type_, {}, y, std::span(codes).first(x.size()), scales);
    }

    const KvType type_;
    const bool levels_only_;
};

class UnitLevels final : public TileCodec {
  public:
    explicit UnitLevels(uint32_t bits) : bits_(bits) {}
    double code(std::span<float> y, const Tile& tile) const override {
        const Levels& levels = normal_levels(bits_);
        for (size_t i = 0; i < y.size(); i++) y[i] = levels.nearest(tile.x[i]);
        return double(bits_) * double(y.size());
    }

  private:
    const uint32_t bits_;
};

class FittedLevels final : public TileCodec {
  public:
    explicit FittedLevels(uint32_t bits) : bits_(bits) {}
    double code(std::span<float> y, const Tile& tile) const override {
        Levels levels = normal_levels(bits_);
        fit_levels(levels.values, tile.x);
        std::ranges::transform(levels.values, levels.values.begin(), stored_half);
        for (size_t i = 0; i < y.size(); i++) y[i] = levels.nearest(tile.x[i]);
        return double(bits_) * double(y.size()) + 16.0 * double(levels.values.size());
    }

  private:
    const uint32_t bits_;
};

class TrellisAlongTokens final : public TileCodec {
  public:
    TrellisAlongTokens(uint32_t bits, uint32_t memory, uint32_t entering)
        : bits_(bits), trellis_(trellis(bits, memory, entering)) {}
    double code(std::span<float> y, const Tile& tile) const override {
        std::vector<float> run(tile.tokens), coded(tile.tokens);
        for (size_t c = 0; c < tile.dim; c++) {
            for (size_t t = 0; t < tile.tokens; t++) run[t] = tile.x[t * tile.dim + c];
            trellis_.code(coded, run);
            for (size_t t = 0; t < tile.tokens; t++) y[t * tile.dim + c] = coded[t];
        }
        return double(bits_) * double(y.size());
    }

  private:
    const uint32_t bits_;
    const Trellis& trellis_;
};

class TrellisAlongChannels final : public TileCodec {
  public:
    TrellisAlongChannels(uint32_t bits, uint32_t memory, uint32_t entering)
        : bits_(bits), trellis_(trellis(bits, memory, entering)) {}
    double code(std::span<float> y, const Tile& tile) const override {
        std::vector<float> run(tile.dim);
        for (size_t at = 0; at < y.size(); at += tile.dim) {
            const std::span x = tile.x.subspan(at, tile.dim);
            const std::span out = y.subspan(at, tile.dim);
            double norm2 = 0, product = 0;
            for (const float v : x) norm2 += double(v) * v;
            const auto scale = float(std::sqrt(norm2 / double(tile.dim)));
            if (scale == 0) {
                std::ranges::fill(out, 0.0f);
                continue;
            }
            for (size_t c = 0; c < tile.dim; c++) run[c] = x[c] / scale;
            trellis_.code(out, run);
            for (size_t c = 0; c < tile.dim; c++) product += double(x[c]) * out[c];
            const float stored = stored_half(product > 0 ? float(norm2 / product) : scale);
            for (float& v : out) v *= stored;
        }
        return (double(bits_) * double(tile.dim) + 16) * double(tile.tokens);
    }

  private:
    const uint32_t bits_;
    const Trellis& trellis_;
};

class RoundToNearest final : public TileCodec {
  public:
    RoundToNearest(uint32_t bits, bool per_channel) : bits_(bits), per_channel_(per_channel) {}
    double code(std::span<float> y, const Tile& tile) const override {
        const size_t groups = per_channel_ ? tile.dim : tile.tokens, members = y.size() / groups;
        const size_t stride = per_channel_ ? tile.dim : 1, step = per_channel_ ? 1 : tile.dim;
        for (size_t g = 0; g < groups; g++) code_group(&y[g * step], &tile.x[g * step], members, stride);
        return double(bits_) * double(y.size()) + 32.0 * double(groups);
    }

  private:
    void code_group(float* y, const float* x, size_t members, size_t stride) const {
        float least = x[0], most = x[0];
        for (size_t i = 0; i < members; i++) least = std::min(least, x[i * stride]), most = std::max(most, x[i * stride]);
        const auto last = float((1u << bits_) - 1);
        const float zero = stored_half(least), scale = stored_half((most - least) / last);
        for (size_t i = 0; i < members; i++) {
            const float code = scale > 0 ? std::clamp(std::round((x[i * stride] - zero) / scale), 0.0f, last) : 0;
            y[i * stride] = zero + scale * code;
        }
    }

    const uint32_t bits_;
    const bool per_channel_;
};

class AllocatedLevels final : public TileCodec {
  public:
    AllocatedLevels(double mean_bits, uint32_t memory, bool weighted)
        : mean_bits_(mean_bits), memory_(memory), weighted_(weighted) {}
    double code(std::span<float> y, const Tile& tile) const override {
        std::vector<double> variance(tile.dim, 0.0), weight(tile.dim, 1.0);
        for (size_t i = 0; i < y.size(); i++) variance[i % tile.dim] += double(tile.x[i]) * tile.x[i] / double(tile.tokens);
        if (weighted_ && !tile.queries.empty()) {
            std::ranges::fill(weight, 0.0);
            for (size_t i = 0; i < tile.queries.size(); i++) weight[i % tile.dim] += double(tile.queries[i]) * tile.queries[i];
        }
        const std::vector<uint32_t> bits = allocate(variance, weight);
        double sum = 20.0 * double(tile.dim);
        std::vector<float> run(tile.tokens), coded(tile.tokens);
        for (size_t c = 0; c < tile.dim; c++) {
            const float gain = stored_half(float(std::sqrt(variance[c])));
            for (size_t t = 0; t < tile.tokens; t++) run[t] = gain > 0 ? tile.x[t * tile.dim + c] / gain : 0;
            code_channel(coded, run, bits[c]);
            for (size_t t = 0; t < tile.tokens; t++) y[t * tile.dim + c] = coded[t] * gain;
            sum += double(bits[c]) * double(tile.tokens);
        }
        return sum;
    }

  private:
    std::vector<uint32_t> allocate(std::span<const double> variance, std::span<const double> weight) const {
        std::vector<uint32_t> bits(variance.size(), 0);
        for (auto left = size_t(mean_bits_ * double(bits.size())); left > 0; left--) {
            size_t best = 0;
            double most = -1;
            for (size_t c = 0; c < bits.size(); c++) {
                const double gain =
                    bits[c] == 8
                        ? 0
                        : variance[c] * weight[c] * (normal_levels(bits[c]).distortion - normal_levels(bits[c] + 1).distortion);
                if (gain > most) most = gain, best = c;
            }
            if (bits[best] < 8) bits[best]++;
        }
        return bits;
    }

    void code_channel(std::span<float> y, std::span<const float> x, uint32_t bits) const {
        if (memory_ > 0 && bits >= 1 && bits <= 4) {
            trellis(bits, memory_, std::min(bits, 2u)).code(y, x);
            return;
        }
        const Levels& levels = normal_levels(bits);
        std::ranges::transform(x, y.begin(), [&](float v) { return levels.nearest(v); });
    }

    const double mean_bits_;
    const uint32_t memory_;
    const bool weighted_;
};

} // namespace

TileCodecPtr token_codec(KvType type, bool levels_only) { return std::make_unique<TokenCodec>(type, levels_only); }
TileCodecPtr unit_levels(uint32_t bits) { return std::make_unique<UnitLevels>(bits); }
TileCodecPtr fitted_levels(uint32_t bits) { return std::make_unique<FittedLevels>(bits); }
TileCodecPtr trellis_along_tokens(uint32_t bits, uint32_t memory, uint32_t entering) {
    return std::make_unique<TrellisAlongTokens>(bits, memory, entering);
}
TileCodecPtr trellis_along_channels(uint32_t bits, uint32_t memory, uint32_t entering) {
    return std::make_unique<TrellisAlongChannels>(bits, memory, entering);
}
TileCodecPtr round_to_nearest(uint32_t bits, bool per_channel) { return std::make_unique<RoundToNearest>(bits, per_channel); }
TileCodecPtr allocated_levels(double mean_bits, uint32_t memory, bool weighted) {
    return std::make_unique<AllocatedLevels>(mean_bits, memory, weighted);
}

} // namespace tq::page_lab
