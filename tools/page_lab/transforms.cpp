#include "tools/page_lab/transforms.h"
#include "base/error.h"
#include "tools/page_lab/linear.h"
#include <algorithm>
#include <cmath>
#include <map>
#include <mutex>
#include <random>

namespace tq::page_lab {
namespace {

class WithoutMean final : public TileCodec {
  public:
    explicit WithoutMean(TileCodecPtr inner) : inner_(std::move(inner)) {}
    double code(std::span<float> y, const Tile& tile) const override {
        std::vector<double> sums(tile.dim, 0.0);
        for (size_t i = 0; i < y.size(); i++) sums[i % tile.dim] += tile.x[i];
        std::vector<float> mean(tile.dim), rest(tile.x.begin(), tile.x.end());
        for (size_t c = 0; c < tile.dim; c++) mean[c] = stored_half(float(sums[c] / double(tile.tokens)));
        for (size_t i = 0; i < y.size(); i++) rest[i] -= mean[i % tile.dim];
        Tile inside = tile;
        inside.x = rest;
        const double bits = inner_->code(y, inside);
        for (size_t i = 0; i < y.size(); i++) y[i] += mean[i % tile.dim];
        return bits + 16.0 * double(tile.dim);
    }

  private:
    const TileCodecPtr inner_;
};

class Rotated final : public TileCodec {
  public:
    explicit Rotated(TileCodecPtr inner) : inner_(std::move(inner)) {}
    double code(std::span<float> y, const Tile& tile) const override {
        const Rotation rotation = make_rotation(RotationKind::wht, tile.layer, tile.side, uint32_t(tile.dim));
        const auto turned = [&](std::span<const float> rows) {
            std::vector<float> out(rows.begin(), rows.end());
            for (size_t at = 0; at < out.size(); at += tile.dim) rotate(std::span(out).subspan(at, tile.dim), rotation);
            for (float& v : out) v /= std::sqrt(rotation.gain());
            return out;
        };
        const std::vector<float> x = turned(tile.x), queries = turned(tile.queries);
        Tile inside = tile;
        inside.x = x, inside.queries = queries, inside.statistics = nullptr;
        const double bits = inner_->code(y, inside);
        for (float& v : y) v *= std::sqrt(rotation.gain());
        for (size_t at = 0; at < y.size(); at += tile.dim) rotate_back(y.subspan(at, tile.dim), rotation);
        return bits;
    }

  private:
    const TileCodecPtr inner_;
};

class RotatedInGroups final : public TileCodec {
  public:
    explicit RotatedInGroups(TileCodecPtr inner) : inner_(std::move(inner)) {}
    double code(std::span<float> y, const Tile& tile) const override {
        std::vector<float> x(tile.x.begin(), tile.x.end());
        const Signs signs = rotation_signs(tile.layer, tile.side);
        const auto negate = [&](float& v, size_t i) { v = (signs[i / 32 % 8] >> (i % 32) & 1) != 0 ? -v : v; };
        for (size_t i = 0; i < x.size(); i++) negate(x[i], i % tile.dim);
        hadamard(x);
        Tile inside = tile;
        inside.x = x, inside.queries = {}, inside.statistics = nullptr;
        const double bits = inner_->code(y, inside);
        hadamard(y);
        for (size_t i = 0; i < y.size(); i++) negate(y[i], i % tile.dim);
        return bits;
    }

  private:
    static void hadamard(std::span<float> x) {
        for (size_t stride = 1; stride < 32; stride *= 2)
            for (size_t i = 0; i < x.size(); i++) {
                if ((i & stride) != 0) continue;
                const float u = x[i], w = x[i + stride];
                x[i] = (u + w) * std::sqrt(0.5f), x[i + stride] = (u - w) * std::sqrt(0.5f);
            }
    }

    const TileCodecPtr inner_;
};

class WithGains final : public TileCodec {
  public:
    WithGains(Gains gains, TileCodecPtr inner) : gains_(gains), inner_(std::move(inner)) {}

    double code(std::span<float> y, const Tile& tile) const override {
        std::vector<float> channel(tile.dim, 1.0f), token(tile.tokens, 1.0f), rest(tile.x.size());
        const auto of = [&](size_t i) { return channel[i % tile.dim] * token[i / tile.dim]; };
        for (int step = 0; step < gains_.steps; step++) {
            if (gains_.channels) balance(channel, token, tile, true);
            if (gains_.tokens) balance(channel, token, tile, false);
        }
        if (gains_.by_queries) divide_by_queries(channel, tile);
        std::ranges::transform(channel, channel.begin(), [&](float g) { return stored(g); });
        const bool tokens = gains_.tokens && gains_.kept;
        if (!tokens) std::ranges::fill(token, 1.0f);
        for (size_t i = 0; i < rest.size(); i++) rest[i] = of(i) > 0 ? tile.x[i] / of(i) : 0;
        std::vector<float> queries(tile.queries.begin(), tile.queries.end());
        for (size_t i = 0; i < queries.size(); i++) queries[i] *= channel[i % tile.dim];
        Tile inside = tile;
        inside.x = rest, inside.queries = queries, inside.statistics = nullptr;
        const double bits = inner_->code(y, inside);
        for (size_t i = 0; i < y.size(); i++) y[i] *= of(i);
        if (tokens) rescale(y, tile, token);
        return bits + (gains_.channels ? (gains_.logarithmic ? 8.0 : 16.0) * double(tile.dim) : 0) +
               (tokens ? 16.0 * double(tile.tokens) : 0);
    }

  private:
    float stored(float gain) const {
        if (!gains_.logarithmic || gain <= 0) return stored_half(gain);
        return std::exp2(std::round(std::clamp(std::log2(gain), -16.0f, 15.8f) * 8) / 8);
    }

    // The error of a score is least where keys and queries have the same magnitude in every channel (model/kv/conditioning.h).
    static void divide_by_queries(std::vector<float>& channel, const Tile& tile) {
        std::vector<double> squares(tile.dim, 0.0);
        for (size_t i = 0; i < tile.queries.size(); i++) squares[i % tile.dim] += double(tile.queries[i]) * tile.queries[i];
        for (size_t c = 0; c < tile.dim && !tile.queries.empty(); c++) {
            const double query = std::sqrt(squares[c] * double(tile.dim) / double(tile.queries.size()));
            channel[c] = query > 0 ? float(std::sqrt(channel[c] / query)) : channel[c];
        }
    }

    // One side's gains = the root mean squares of what the other side's leave.
    static void balance(std::vector<float>& channel, std::vector<float>& token, const Tile& tile, bool channels) {
        std::vector<float>&gains = channels ? channel : token, &others = channels ? token : channel;
        std::vector<double> squares(gains.size(), 0.0);
        for (size_t t = 0; t < tile.tokens; t++)
            for (size_t c = 0; c < tile.dim; c++) {
                const float by = others[channels ? t : c], v = by > 0 ? tile.x[t * tile.dim + c] / by : 0;
                squares[channels ? c : t] += double(v) * v;
            }
        for (size_t i = 0; i < gains.size(); i++) gains[i] = float(std::sqrt(squares[i] / double(others.size())));
    }

    // The tokens' gains are stored once the codes are known, corrected by the rule.
    void rescale(std::span<float> y, const Tile& tile, std::span<const float> token) const {
        for (size_t t = 0; t < tile.tokens; t++) {
            const std::span x = tile.x.subspan(t * tile.dim, tile.dim);
            const std::span out = y.subspan(t * tile.dim, tile.dim);
            double norm2 = 0, product = 0, coded2 = 0;
            for (size_t c = 0; c < tile.dim; c++)
                norm2 += double(x[c]) * x[c], product += double(x[c]) * out[c], coded2 += double(out[c]) * out[c];
            if (product <= 0 || token[t] <= 0) continue;
            const double factor = gains_.least_squares ? product / coded2 : norm2 / product;
            const float exact = token[t] * float(factor), by = stored_half(exact) / token[t];
            for (float& v : out) v *= by;
        }
    }

    const Gains gains_;
    const TileCodecPtr inner_;
};

class CalibratedBasis final : public TileCodec {
  public:
    CalibratedBasis(double damping, TileCodecPtr inner) : damping_(damping), inner_(std::move(inner)) {}
    double code(std::span<float> y, const Tile& tile) const override {
        if (tile.statistics == nullptr)
            fail("the calibrated basis needs a calibration text, and is the first transform of a chain");
        const Basis& basis = basis_of(*tile.statistics, tile.dim);
        std::vector<float> x(tile.x.size()), coded(tile.x.size());
        apply(x, basis.forward, tile.x, tile.dim);
        Tile inside = tile;
        inside.x = x, inside.queries = {}, inside.statistics = nullptr;
        const double bits = inner_->code(coded, inside);
        apply(y, basis.backward, coded, tile.dim);
        return bits;
    }

  private:
    struct Basis {
        Matrix forward, backward;
    };

    const Basis& basis_of(const Statistics& s, size_t n) const {
        const std::lock_guard lock(mutex_);
        const auto [at, fresh] = bases_.try_emplace(&s);
        if (!fresh) return at->second;
        Matrix metric = s.metric;
        double trace = 0;
        for (size_t i = 0; i < n; i++) trace += metric[i * n + i];
        for (size_t i = 0; i < n; i++) metric[i * n + i] += damping_ * trace / double(n);
        const Eigen of_metric = eigen(metric, n);
        const double floor = 1e-6 * of_metric.values[0];
        const Matrix root = power(of_metric, 0.5, floor), inverse = power(of_metric, -0.5, floor);
        const Eigen e = eigen(multiply(multiply(root, s.covariance, n), root, n), n);
        at->second = {multiply(transposed(e.vectors, n), root, n), multiply(inverse, e.vectors, n)};
        return at->second;
    }

    const double damping_;
    const TileCodecPtr inner_;
    mutable std::mutex mutex_;
    mutable std::map<const Statistics*, Basis> bases_;
};

class Noise final : public TileCodec {
  public:
    explicit Noise(double share) : share_(share) {}
    double code(std::span<float> y, const Tile& tile) const override {
        std::mt19937 random(tile.layer * 64 + tile.head * 2 + uint32_t(tile.side));
        std::normal_distribution<float> normal;
        for (size_t at = 0; at < y.size(); at += tile.dim) {
            double squares = 0;
            for (size_t c = 0; c < tile.dim; c++) squares += double(tile.x[at + c]) * tile.x[at + c];
            const auto deviation = float(std::sqrt(share_ * squares / double(tile.dim)));
            for (size_t c = 0; c < tile.dim; c++) y[at + c] = tile.x[at + c] + deviation * normal(random);
        }
        return 0;
    }

  private:
    const double share_;
};

} // namespace

TileCodecPtr without_mean(TileCodecPtr inner) { return std::make_unique<WithoutMean>(std::move(inner)); }
TileCodecPtr rotated(TileCodecPtr inner) { return std::make_unique<Rotated>(std::move(inner)); }
TileCodecPtr rotated_in_groups(TileCodecPtr inner) { return std::make_unique<RotatedInGroups>(std::move(inner)); }
TileCodecPtr with_gains(Gains gains, TileCodecPtr inner) { return std::make_unique<WithGains>(gains, std::move(inner)); }
TileCodecPtr in_calibrated_basis(double damping, TileCodecPtr inner) {
    return std::make_unique<CalibratedBasis>(damping, std::move(inner));
}
TileCodecPtr noise(double share) { return std::make_unique<Noise>(share); }

} // namespace tq::page_lab
