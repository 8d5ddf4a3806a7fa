// Statistics of each channel of keys and queries, over the tokens that a model runs.
#pragma once
#include "model/forward.h"
#include "model/weights/weights.h"

namespace tq::quality {

// The parts of the calibration to compute; the others keep their neutral values.
enum class CalibrationParts { both, scales, means };

// The first tokens of a text do not count: attention makes a sink of them, with keys unlike all others.
inline constexpr uint32_t left_out_tokens = 8;

// Sums over the keys and queries that the taps of a forward pass get. Its cache must be of a type that is not rotated, and not
// conditioned: otherwise the queries are too.
class KeyStatistics {
  public:
    KeyStatistics(const Config& config, const Weights& weights);

    Tap tap(); // refers to this object
    void begin_text() { next_.assign(next_.size(), {}); }
    uint64_t tokens() const { return tokens_; } // that count

    // means: what RoPE makes of the mean key on average at positions 0 .. mean_positions - 1. scales g, one for channels c and c
    // + head_dim / 2: g^2 = rms(key - mean) / rms(query), at the same positions and over all query heads of a kv head, next to a
    // power of 2^(1/4) times the geometric mean of the head's. The error of a stored vector is equally large in every channel and
    // proportional to its length, so that the error of a score is proportional to |query * g| |(key - mean) / g|, which this
    // minimises. turboquant.md, "Conditioning". tokens() is above 0.
    KeyCalibration calibration(CalibrationParts parts) const;

  private:
    struct Channel {
        double k = 0, k_squares = 0, q_squares = 0; // keys before RoPE
    };
    struct Next {
        uint64_t key = 0, query = 0; // the positions of a layer's next ones
    };
    void add_keys(uint32_t layer, std::span<const float> k);
    void add_queries(uint32_t layer, std::span<const float> q);

    const Config config_;
    std::vector<std::vector<float>> k_norms_; // of the layers
    std::vector<Channel> channels_;           // [layers][kv_heads][head_dim]
    std::vector<Next> next_;                  // of each layer
    uint32_t first_ = 0;                      // the first layer with keys
    uint64_t tokens_ = 0;
};

} // namespace tq::quality
