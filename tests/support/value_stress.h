// The parts of stressed_model.h: random factors and directions, and values of a layer that are multiplied on one side of the
// cache and divided on the other.
#pragma once
#include "tests/support/stressed_model.h"
#include "tools/check/conformance/vectors/random.h"
#include <span>

namespace tq::test {

class Draws {
  public:
    Draws(uint64_t seed, uint32_t tails) : random_{seed}, tails_(tails) {}

    // Returns `count` factors. Throws Error if there are fewer than outliers, or an outlier's factor is not a number above 0.
    std::vector<double> scales(uint32_t count, double spread, const Outliers& outliers);
    // Returns a random orthogonal matrix [d][d].
    std::vector<double> directions(uint32_t d);

  private:
    double logarithm(); // of a factor, of spread 1

    conformance::Random random_;
    const uint32_t tails_;
};

// The weights of a layer on both sides of its values.
struct ValueTensors {
    std::vector<float>& v;      // [kv_heads * head_dim][hidden_size]
    std::vector<float>* bias;   // [kv_heads * head_dim]; null: none
    std::vector<float>& output; // [hidden_size][kv_heads * group * head_dim]
    uint32_t hidden_size, kv_heads, group, head_dim;
};

// Values of a kv head times scales [head_dim].
void scale_values(ValueTensors& values, uint32_t head, std::span<const double> scales);
// Values of a kv head times Q^T diag(scales) Q. directions: Q, orthogonal, [head_dim][head_dim]
void stretch_values(ValueTensors& values, uint32_t head, std::span<const double> directions, std::span<const double> scales);
// Returns WeightStress::balance_values' 1 / g of a kv head, 1 if it would be 0 or infinite. norm: attn_norm's weights
std::vector<double> balancing_scales(const ValueTensors& values, uint32_t head, std::span<const float> norm);

} // namespace tq::test
