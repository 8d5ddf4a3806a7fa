// Logits as keys, and the settings of sampling; the counterpart of model/engine/sampling/device_sampling.cpp.
#include "sampling.h"

// The host's settings for each batch of steps, and the ids it reads back. Step i samples with random[i]; Context counts the
// steps. Bit id % 32 of id_words[id / 32]: the id is never sampled. After these words, if settings.penalises, each id's
// token_use.
#define SAMPLING_AT(n, qualifier)                                                                                                    \
    layout(binding = n) qualifier buffer Sampling {                                                                              \
        sampling_settings settings;                                                                                              \
        uint random[SAMPLING_STEPS];                                                                                             \
        uint sampled[SAMPLING_STEPS];                                                                                            \
        uint id_words[];                                                                                                         \
    }

// Returns a key: keys are ordered as finite logits are, and both zeros have one key. No finite logit has NO_LOGIT or
// NONFINITE_LOGIT.
uint key_of(uint bits) {
    if ((bits & 0x7f800000u) == 0x7f800000u) return NONFINITE_LOGIT;
    if ((bits & 0x7fffffffu) == 0u) return 0x80000000u;
    return (bits & 0x80000000u) != 0u ? ~bits : bits | 0x80000000u;
}
float logit_of(uint key) { return uintBitsToFloat((key & 0x80000000u) != 0u ? key & 0x7fffffffu : ~key); }

uint penalised_key(uint key, sampling_settings s, token_use use) {
    precise float logit = logit_of(key);
    if (use.end != 0u && use.end + s.repeat_last_n > s.next) {
        precise float repeated = logit * (logit > 0.0 ? s.inverse_repeat : s.repeat_penalty);
        logit = clamp(repeated, -MAX_LOGIT, MAX_LOGIT);
    }
    if (use.count != 0u) {
        precise float present = logit - s.presence_penalty;
        precise float frequent = s.frequency_penalty * float(use.count);
        precise float penalised = present - frequent;
        logit = clamp(penalised, -MAX_LOGIT, MAX_LOGIT);
    }
    return key_of(floatBitsToUint(logit));
}

// True if the logit with key a at place i precedes that with key b at place j: the greater one, on a tie the earlier.
bool precedes(uint a, uint i, uint b, uint j) { return a > b || (a == b && i < j); }

// Returns exp((logit - max_logit) * inverse_temperature) in units of 2^-24, rounded: model/engine/sampling/device_sampling.h.
uint sampling_weight(float logit, float max_logit, float inverse_temperature) {
    precise float x = (logit - max_logit) * inverse_temperature;
    if (!(x > -18.0)) return 0u;
    precise float y = x * EXP_LOG2_E;
    precise float shifted = y + EXP_ROUND;
    precise float r = y - (shifted - EXP_ROUND);
    precise float p = EXP_6 * r + EXP_5;
    p = p * r + EXP_4;
    p = p * r + EXP_3;
    p = p * r + EXP_2;
    p = p * r + EXP_1;
    p = p * r + 1.0;
    const uint bits = floatBitsToUint(p);
    const int down = 126 - int(bits >> 23) - (int(floatBitsToUint(shifted)) - int(floatBitsToUint(EXP_ROUND)));
    const uint mantissa = (bits & 0x7fffffu) | 0x800000u;
    return down <= 0 ? mantissa << -down : (mantissa + (1u << (down - 1))) >> down;
}
