// What keys and queries look like in each channel, of the tokens that a model runs.
#pragma once
#include "model/forward.h"
#include "model/weights/weights.h"

namespace tq::quality {

// What is made of it; the other keeps its neutral value.
enum class CalibrationParts { both, scales, means };

// Sums over the keys and queries, after RoPE, that taps of a forward pass show. Its cache must be of a type that is not rotated,
// and not conditioned: queries come with it.
class KeyStatistics {
  public:
    KeyStatistics(const Config& config, const Weights& weights, uint32_t positions);

    Tap tap(); // refers to this
    void begin_text() { positions_.assign(positions_.size(), 0); }
    uint64_t tokens() const { return tokens_; }

    // means: those of the keys; scales g: g^2 = rms(key - mean) / rms(query), the query heads of a kv head taken together. The
    // error of a stored vector is as large in every channel and grows with its length, so that of a score with |query * g| |(key
    // - mean) / g|, which this makes least. tokens() is above 0.
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
    std::vector<uint32_t> positions_;         // of each layer's next key
    uint64_t tokens_ = 0;
};

} // namespace tq::quality
