// Sampling with integers, in the same bits on the host and on devices (shaders/sampling.glsl): a client that asks with a seed
// must get the same tokens, whoever samples. Floats are rounded differently in places that matter here (exp, sums in another
// order), so:
// - A logit becomes a weight in units of 2^-24 of the greatest one's, by a polynomial whose operations are all exact or correctly
//   rounded, without contraction (sampling_weight()).
// - From there on all is integer: sums, top-p as a fraction of 2^32, the random number. Rounding directions are part of the
//   definition.
// The coefficients and limits are shared with the shaders by a header (shaders/sampling.h).
#include "model/engine/sampling/device_sampling.h"
#include <algorithm>
#include <bit>
#include <cmath>

namespace tq {

sampling_settings make_sampling_settings(uint32_t candidates, float temperature, float top_p, float min_p) {
    return {.candidates = candidates,
            .inverse_temperature = 1 / std::max(temperature, 0x1p-64f),
            .top_p = uint32_t(std::min(std::ceil(double(top_p) * 0x1p32), 0x1p32 - 1)),
            .min_p = uint32_t(std::ceil(double(min_p) * 0x1p24)),
            .penalises = 0,
            .next = 0,
            .repeat_last_n = 0,
            .repeat_penalty = 1,
            .inverse_repeat = 1,
            .presence_penalty = 0,
            .frequency_penalty = 0};
}

void set_penalties(sampling_settings& settings, const Penalties& penalties, size_t next) {
    settings.penalises = 1;
    settings.next = uint32_t(next);
    settings.repeat_last_n = penalties.repeat == 1 ? 0 : std::min(penalties.repeat_last_n, uint32_t(INT32_MAX));
    settings.repeat_penalty = penalties.repeat;
    settings.inverse_repeat = 1 / penalties.repeat;
    settings.presence_penalty = penalties.presence;
    settings.frequency_penalty = penalties.frequency;
}

float penalised_logit(float logit, const sampling_settings& settings, const token_use& use) {
    if (use.end != 0 && use.end + settings.repeat_last_n > settings.next) {
        const float repeated = logit * (logit > 0 ? settings.inverse_repeat : settings.repeat_penalty);
        logit = std::clamp(repeated, -MAX_LOGIT, MAX_LOGIT);
    }
    if (use.count != 0) {
        const float present = logit - settings.presence_penalty;
        logit = std::clamp(present - settings.frequency_penalty * float(use.count), -MAX_LOGIT, MAX_LOGIT);
    }
    return logit;
}

uint32_t sampling_weight(float logit, float max_logit, float inverse_temperature) {
    const float x = (logit - max_logit) * inverse_temperature;
    if (!(x > -18.0f)) return 0; // a quarter of the unit
    const float y = x * EXP_LOG2_E, shifted = y + EXP_ROUND, r = y - (shifted - EXP_ROUND);
    float p = EXP_6 * r + EXP_5; // the build disables contraction
    p = p * r + EXP_4;
    p = p * r + EXP_3;
    p = p * r + EXP_2;
    p = p * r + EXP_1;
    p = p * r + 1.0f;
    const auto bits = std::bit_cast<uint32_t>(p);
    const int n = std::bit_cast<int32_t>(shifted) - std::bit_cast<int32_t>(EXP_ROUND);
    const uint32_t mantissa = (bits & 0x7fffff) | 0x800000; // p = mantissa * 2^(exponent - 150)
    const int down = 126 - int(bits >> 23) - n;
    return down <= 0 ? mantissa << -down : (mantissa + (1u << (down - 1))) >> down;
}

size_t sampled_index(std::span<const uint32_t> weights, const sampling_settings& settings, uint32_t random) {
    uint32_t sum = 0;
    for (const uint32_t weight : weights) sum += weight;
    const auto min_mass = uint32_t((uint64_t(sum) * settings.top_p + 0xffffffff) >> 32);
    uint32_t mass = weights[0];
    size_t kept = 1;
    for (; kept < weights.size() && mass < min_mass && weights[kept] >= settings.min_p; kept++) mass += weights[kept];
    const auto target = uint32_t(uint64_t(mass) * random >> 32);
    size_t chosen = 0;
    for (uint32_t reached = weights[0]; chosen + 1 < kept && reached <= target; reached += weights[chosen]) chosen++;
    return chosen;
}

// mass * fraction / 2^32 with a 64-bit mass, in two halves, rounded down or up.
uint64_t fraction_of(uint64_t mass, uint32_t fraction, bool up) {
    const uint64_t low = (mass & 0xffffffff) * fraction + (up ? 0xffffffff : 0);
    return (mass >> 32) * fraction + (low >> 32);
}

uint32_t sampled_id(std::span<const Weighed> kept, uint32_t random) {
    uint64_t mass = 0, reached = 0;
    for (const Weighed& one : kept) mass += one.weight;
    const uint64_t target = fraction_of(mass, random, false);
    return std::ranges::find_if(kept, [&](const Weighed& one) { return target < (reached += one.weight); })->id;
}

} // namespace tq
