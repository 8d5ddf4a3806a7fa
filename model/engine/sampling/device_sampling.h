// Samples a token in arithmetic with the same bits on every processor and every device: additions and multiplications of fp32,
// each rounded by itself, and integers. The counterpart of shaders/sampling.glsl, sample.comp and sample_all.comp.
#pragma once
#include "shaders/sampling.h"
#include <span>
#include <vector>

namespace tq {

// candidates: top-k; 0: all. temperature > 0, 0 <= top_p, min_p <= 1. A temperature below 2^-64 counts as 2^-64:
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

// Returns exp((logit - max_logit) * inverse_temperature) in units of 2^-24, rounded, within 1 unit or a relative 6e-7 of it,
// whichever is more; logit <= max_logit. Computed as 2^n 2^r with an integer n and |r| <= 1/2; 2^r by the polynomial of
// shaders/sampling.h.
uint32_t sampling_weight(float logit, float max_logit, float inverse_temperature);

// True if few candidates are sampled from, by sampled_index(); otherwise by sampled_id().
inline bool has_few_candidates(const sampling_settings& settings) {
    return settings.candidates != 0 && settings.candidates <= SAMPLING_CANDIDATES;
}

// Returns the index sampled from `weights`: the weights of the candidates in descending order; the first is 2^24. Top-p keeps the
// fewest whose sum is at least top_p of all. Min-p keeps those before the first below min_p. With their mass m, the one that
// contains floor(m random / 2^32) is sampled. Sums fit 32 bits, and products 64.
size_t sampled_index(std::span<const uint32_t> weights, const sampling_settings& settings, uint32_t random);

// Returns mass fraction / 2^32, rounded up or down. mass < 2^42, the sum of all weights of the largest vocabulary.
uint64_t fraction_of(uint64_t mass, uint32_t fraction, bool up);

// Any number of candidates: top-p and min-p keep as above, but top-p = 1 keeps all, and none of weight 0 is kept; the kept ids
// are then in ascending order, and of their mass m the one that contains floor(m random / 2^32) is sampled. `kept`: these, in
// that order.
struct Weighed {
    uint32_t id, weight;
};
uint32_t sampled_id(std::span<const Weighed> kept, uint32_t random);

struct UsedToken {
    uint32_t id;
    token_use use;
};

// The inputs with which a device samples tokens by itself.
struct DeviceSampling {
    sampling_settings settings;
    std::vector<uint32_t> random;       // one per token
    std::span<const uint32_t> excluded; // bit id % 32 of word id / 32: never sampled; empty: none. At least one id is left
    std::vector<UsedToken> used;        // if settings.penalises: each id once
};

} // namespace tq
