// Samples a token from a few best candidates, in arithmetic with the same bits on every processor and every device: additions
// and multiplications of fp32, each rounded by itself, and integers. The counterpart of shaders/sampling.glsl and
// shaders/sample.comp.
#pragma once
#include "shaders/sampling.h"
#include <span>
#include <vector>

namespace tq {

// 1 <= candidates <= SAMPLING_CANDIDATES, temperature > 0, 0 <= top_p, min_p <= 1. A temperature below 2^-64 counts as 2^-64:
// with a greater 1 / T, differences too small for a device that flushes denormals would begin to matter.
sampling_settings make_sampling_settings(uint32_t candidates, float temperature, float top_p, float min_p);

// The penalties of settings; `next` is the index of the token to be sampled, prompt included.
struct Penalties {
    float presence, frequency, repeat; // shaders/sampling.h
    uint32_t repeat_last_n;
};
void set_penalties(sampling_settings& settings, const Penalties& penalties, size_t next);

// Returns the logit of a token that was used before: penalised for being recent, then for its uses in the answer.
float penalised_logit(float logit, const sampling_settings& settings, const token_use& use);

// Returns exp((logit - greatest) * inverse_temperature) in units of 2^-24, rounded, within 1 unit or a relative 6e-7 of it,
// whichever is more; logit <= greatest. Computed as 2^n 2^r with an integer n and |r| <= 1/2; 2^r by the polynomial of
// shaders/sampling.h.
uint32_t sampling_weight(float logit, float greatest, float inverse_temperature);

// Returns the index sampled from `weights`, those of the candidates in descending order, the first of which is 2^24. Top-p
// keeps the fewest whose sum is at least top_p of all, min-p those before the first that is below min_p; of their mass m, the
// one that contains floor(m random / 2^32) is sampled. Sums fit 32 bits, and products 64.
size_t sampled_index(std::span<const uint32_t> weights, const sampling_settings& settings, uint32_t random);

struct UsedToken {
    uint32_t id;
    token_use use;
};

// The inputs with which a device samples tokens by itself.
struct DeviceSampling {
    sampling_settings settings;
    std::vector<uint32_t> random;       // one per token
    std::span<const uint32_t> excluded; // bit id % 32 of word id / 32: never sampled; empty: none. At least one id is left
    std::vector<UsedToken> used;        // where settings.penalises: each id once
};

} // namespace tq
