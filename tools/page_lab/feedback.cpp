// Error feedback along the channels of a token, as GPTQ does it for weights.
#include "base/error.h"
#include "tools/page_lab/leaves.h"
#include "tools/page_lab/levels.h"
#include "tools/page_lab/linear.h"
#include <algorithm>
#include <cmath>
#include <map>
#include <mutex>

namespace tq::page_lab {
namespace {

// What one metric means for the rotated channels of a head.
struct Feedback {
    std::vector<float> metric; // [dim][dim]
    std::vector<float> upper;  // U, U^T U the inverse of the damped metric
};

Feedback make_feedback(const Matrix& metric, const Rotation& rotation, double damping) {
    const size_t n = rotation.head_dim;
    std::vector<float> rows(metric.begin(), metric.end());
    const auto turn = [&] {
        for (size_t at = 0; at < rows.size(); at += n) rotate(std::span(rows).subspan(at, n), rotation);
        for (float& v : rows) v /= std::sqrt(rotation.gain());
    };
    turn(); // the columns, then the rows of the symmetric matrix
    const Matrix half = transposed(Matrix(rows.begin(), rows.end()), n);
    std::ranges::copy(half, rows.begin());
    turn();
    Matrix damped(rows.begin(), rows.end());
    double trace = 0;
    for (size_t i = 0; i < n; i++) trace += damped[i * n + i];
    for (size_t i = 0; i < n; i++) damped[i * n + i] += (damping + 1e-6) * trace / double(n);
    for (size_t i = 0; i < n; i++)
        for (size_t j = 0; j < i; j++) damped[i * n + j] = damped[j * n + i];
    const Eigen e = eigen(damped, n);
    const Matrix upper = cholesky_upper(power(e, -1, 1e-9 * e.values[0]), n);
    return {rows, {upper.begin(), upper.end()}};
}

class FeedbackCodec final : public TileCodec {
  public:
    FeedbackCodec(uint32_t bits, Metric metric, double damping) : bits_(bits), metric_(metric), damping_(damping) {}

    double code(std::span<float> y, const Tile& tile) const override {
        const Rotation rotation = make_rotation(RotationKind::wht, tile.layer, tile.side, uint32_t(tile.dim));
        const bool page = metric_ == Metric::page && !tile.queries.empty();
        if (!page && tile.statistics == nullptr) fail("error feedback needs a calibration text, and is alone in its chain");
        Feedback of_page;
        if (page) of_page = make_feedback(second_moment(tile.queries, tile.dim), rotation, damping_);
        const Feedback& feedback = page ? of_page : calibrated(*tile.statistics, rotation);
        std::ranges::copy(tile.x, y.begin());
        for (size_t at = 0; at < y.size(); at += tile.dim) {
            const auto x = y.subspan(at, tile.dim);
            rotate(x, rotation);
            code_token(x, feedback);
            rotate_back(x, rotation);
        }
        return (double(bits_) * double(tile.dim) + 16) * double(tile.tokens);
    }

  private:
    const Feedback& calibrated(const Statistics& s, const Rotation& rotation) const {
        const std::lock_guard lock(mutex_);
        const auto [at, fresh] = known_.try_emplace(&s);
        if (fresh) at->second = make_feedback(s.metric, rotation, damping_);
        return at->second;
    }

    void code_token(std::span<float> x, const Feedback& feedback) const {
        double squares = 0;
        for (const float v : x) squares += double(v) * v;
        const auto deviation = float(std::sqrt(squares / double(x.size())));
        if (deviation == 0) return;
        std::vector<float> best(x.begin(), x.end()), coded(x.size());
        double least = INFINITY;
        for (const float factor : {0.9f, 1.0f, 1.1f, 1.2f}) {
            const double error = quantise(coded, x, feedback, deviation * factor);
            if (error < least) least = error, best = coded;
        }
        std::ranges::copy(best, x.begin());
    }

    // Returns the error by the metric, with the scale stored.
    double quantise(std::span<float> coded, std::span<const float> x, const Feedback& feedback, float scale) const {
        const Levels& levels = normal_levels(bits_);
        const size_t n = x.size();
        std::vector<float> rest(x.begin(), x.end());
        const float stored = stored_half(scale);
        for (size_t i = 0; i < n; i++) {
            coded[i] = levels.nearest(rest[i] / stored) * stored;
            const float* row = &feedback.upper[i * n];
            const float error = (rest[i] - coded[i]) / row[i];
            for (size_t j = i + 1; j < n; j++) rest[j] -= error * row[j];
        }
        double sum = 0;
        for (size_t i = 0; i < n; i++) {
            double product = 0;
            for (size_t j = 0; j < n; j++) product += double(feedback.metric[i * n + j]) * (x[j] - coded[j]);
            sum += (x[i] - coded[i]) * product;
        }
        return sum;
    }

    const uint32_t bits_;
    const Metric metric_;
    const double damping_;
    mutable std::mutex mutex_;
    mutable std::map<const Statistics*, Feedback> known_;
};

} // namespace

TileCodecPtr feedback_codec(uint32_t bits, Metric metric, double damping) {
    return std::make_unique<FeedbackCodec>(bits, metric, damping);
}

} // namespace tq::page_lab
