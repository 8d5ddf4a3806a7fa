// The rotary table, made once on the CPU: no device's sine or cosine is trusted. Stretched positions as in Peng et al., "YaRN:
// Efficient Context Window Extension of Large Language Models", with the numbers of transformers and llama.cpp.
#pragma once
#include "model/config.h"
#include <span>
#include <vector>

namespace tq {

// The pairs of a head between which YaRN changes from unchanged positions, up to pair `low`, to stretched ones, from `high` on:
// rotary ln(original / (2 pi turns)) / (2 ln theta), rounded outwards, for beta_fast and for beta_slow turns.
struct YarnRange {
    double low, high;
};
YarnRange yarn_range(const Config& config);

// Returns the angle per position of pair i: f = rope_theta^(-2 i / rotary) / rope_factors[i], rotary =
// Config::rotary(); linear: f / factor; YaRN: between f and f / factor as the pair is between low and high.
double rope_frequency(const Config& config, uint32_t pair);

// The scaling of Llama 3.1 ("rope_type": "llama3" in config.json), by the names of its keys.
struct Llama3Rope {
    double factor, low_freq_factor, high_freq_factor, original_context_length;
};

// Returns Config::rope_factors, which GGUF files have as rope_freqs.weight: 1 for pairs that turn more than high_freq_factor
// times in the original context, `factor` for those that turn less than low_freq_factor times, and between them 1 / ((1 - s) /
// factor + s); s goes from 0 to 1 with the turns.
std::vector<float> llama3_factors(const Llama3Rope& scaling, float rope_theta, uint32_t head_dim);

// Returns the factor of cosine and sine: attn_factor, and for YaRN times 0.1 ln(factor) + 1.
double attention_factor(const RopeScaling& scaling);

// Returns [positions][rotary / 2][2]: cosine and sine of p * rope_frequency(i), times attention_factor, computed in double,
// rounded to fp32.
std::vector<float> rope_table(const Config& config, uint32_t positions);

// Returns the mean of what RoPE makes of x at the first `positions` positions, head by head, without its factor. x:
// [heads][head_dim]
std::vector<float> rope_mean(const Config& config, std::span<const float> x, uint32_t positions);

} // namespace tq
