// Statistics of each channel of keys and queries, over the tokens that a model runs.
#pragma once
#include "model/forward.h"
#include "model/weights/weights.h"

namespace tq::quality {

// The parts of the calibration to compute; the others keep their neutral values.
enum class CalibrationParts { both, scales, means };

// Sums over the keys and queries, after RoPE, that the taps of a forward pass get. Its cache must be of a type that is not
// rotated, and not conditioned: otherwise the queries are too.
class KeyStatistics {
  public:
    KeyStatistics(const Config& config, const Weights& weights, uint32_t positions);

    Tap tap(); // refers to this object
    void begin_text() { positions_.assign(positions_.size(), 0); }
    uint64_t tokens() const { return tokens_; }

    // means: those of the keys; scales g: g^2 = rms(key - mean) / rms(query), over all query heads of a kv head. The error of a
    // stored vector is equally large in every channel and proportional to its length, so that the error of a score is
    // proportional to |query * g| |(key - mean) / g|, which this minimises. tokens() is above 0.
    KeyCalibration calibration(CalibrationParts parts) const;

  private:
    struct Channel {
        double k = 0, k_squares = 0, q_squares = 0;
    };
    void add_keys(uint32_t layer, std::span<const float> k);
    void add_queries(uint32_t layer, std::span<const float> q);

    const Config config_;
    const std::vector<float> rope_;
    std::vector<std::vector<float>> k_norms_; // of the layers
    std::vector<Channel> channels_;           // [layers][kv_heads][head_dim]
    std::vector<uint32_t> positions_;         // the position of each layer's next key
    uint64_t tokens_ = 0;
};

} // namespace tq::quality
