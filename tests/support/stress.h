// Keys and values as large models may have them, at a cache's door: exact vectors are changed before they are stored, and
// changed back after they were read, so that an exact cache changes nothing but the rounding of fp32. For what weights cannot
// express in a given model: position by position, element by element, or by kv head. (What they can:
// tests/support/stressed_model.h.)
#pragma once
#include "model/kv/rotation.h"
#include "model/weights/weights.h"
#include <cstdint>
#include <span>
#include <vector>

namespace tq::quality {

// Changes, made in this order to each vector x [head_dim] of the chosen layers, keys after RoPE.
struct Stress {
    // x[c] *= sqrt(dof / chi^2), chi^2 of dof degrees of freedom for each element of each vector: normal elements get Student's
    // t distribution. 0: not done.
    uint32_t heavy_tails = 0;
    // x[c] *= exp(channel_spread * n), n normal for each kv head and channel: what a scale common to all heads cannot undo.
    float channel_spread = 0;
    // x *= exp(token_spread * n), n normal for each vector.
    float token_spread = 0;
    // x *= sink_factor at positions 0 .. sinks - 1.
    uint32_t sinks = 0;
    float sink_factor = 1;
    // Keys: x += RoPE(b), b[c] = key_bias * rms * n, n normal for each kv head and channel; rms is that of the weights of the
    // layer's norm of keys, and so of its keys, 1 in models without norms.
    float key_bias = 0;
    std::vector<uint32_t> layers; // empty: all
    uint64_t seed = 1;
};

// The changes of one model's vectors. Calls may run in several threads.
class StressedVectors {
  public:
    // positions: maximum of a sequence. Throws Error for a layer that the model does not have, and for factors that are not
    // finite or not above 0.
    StressedVectors(const Stress& stress, const Config& config, const Weights& weights, uint32_t positions);

    // x: [tokens][kv_heads][head_dim], those of tokens from position `first` on. In place.
    void apply(std::span<float> x, KvSide side, uint32_t layer, uint32_t first) const;
    // The inverse: x is apply()'s result, or what a cache made of it.
    void undo(std::span<float> x, KvSide side, uint32_t layer, uint32_t first) const;

    // Returns b of all kv heads of a layer, [kv_heads][head_dim]; zeros if it has none.
    std::vector<float> key_bias(uint32_t layer) const;
    // Returns the factors of channel_spread, [kv_heads][head_dim]; ones if a layer has none.
    std::vector<double> channel_factors(KvSide side, uint32_t layer) const;

  private:
    // x' = x * factors + offsets, in double.
    struct Change {
        std::vector<double> factors, offsets;
    };
    std::vector<double> factors_of_head(KvSide side, uint32_t layer, uint32_t kv_head) const;
    Change change(KvSide side, uint32_t layer, uint32_t kv_head, uint32_t position) const;
    template <class F> void each_vector(std::span<float> x, KvSide side, uint32_t layer, uint32_t first, F body) const;
    uint64_t seed_of(KvSide side, uint32_t layer, uint32_t kv_head, uint64_t what) const;
    bool chosen(uint32_t layer) const;

    Stress stress_;
    uint32_t head_dim_, rotary_, kv_heads_;
    std::vector<float> rope_;     // model/rope.h
    std::vector<double> key_rms_; // [layers]
};

} // namespace tq::quality
