// Sampling of a token (model/engine/sampling/device_sampling.h), one text for GLSL and C++: sizes, settings, and the coefficients
// of the weights.
#ifdef __cplusplus
#pragma once
#include <cstdint>
namespace tq {
using uint = uint32_t;
#endif

#define SAMPLING_CANDIDATES 64u  // maximum of a few candidates: their weights sum to at most 2^30
#define SAMPLING_STEPS 16u       // maximum of tokens that a device samples before the host reads them
#define SAMPLING_STRETCH 1024u   // logits per workgroup of sample_candidates
#define SAMPLING_STRETCHES 256u  // maximum of stretches: 262,144 logits
#define NO_TOKEN 0xffffffffu     // sampled if a logit is not finite, or no id may be sampled
#define NO_LOGIT 0u              // key (shaders/sampling.glsl) of the logit of an id that is excluded, or past the vocabulary
#define NONFINITE_LOGIT NO_TOKEN // greater than every finite key, and so always found

// All inputs of sampling besides logits, excluded ids and 32 random bits; model/engine/sampling/device_sampling.h makes it.
struct sampling_settings {
    uint candidates;           // top-k; 0: all
    float inverse_temperature; // at most 2^64
    uint top_p;                // in units of 2^-32
    uint min_p;                // in units of 2^-24
    uint penalises;            // 1: the penalties below apply to tokens that were used before
    uint next;                 // index of the token that is sampled next, prompt included
    uint repeat_last_n;        // how many tokens before it are recent; at most 2^31 - 1
    float repeat_penalty;      // a recent token's logit is multiplied by it if it is not positive,
    float inverse_repeat;      // by this if it is
    float presence_penalty;    // subtracted from the logit of every token of the answer,
    float frequency_penalty;   // and this times its number there
};

// Uses of a token so far: their number in the answer, and the index after the last one; 0: it was never used.
struct token_use {
    uint count;
    uint end;
};
#define MAX_LOGIT 3.40282347e38f // penalised logits stay finite

// 2^r = the sum of (r ln 2)^k / k!, |r| <= 1/2: Taylor's polynomial of degree 6, whose remainder is below 1.2e-7.
#define EXP_LOG2_E 1.44269504f
#define EXP_1 0.693147181f
#define EXP_2 0.240226507f
#define EXP_3 0.0555041087f
#define EXP_4 0.00961812911f
#define EXP_5 0.00133335581f
#define EXP_6 0.000154035304f
#define EXP_ROUND 12582912.0f // 1.5 * 2^23: adding and then subtracting it rounds to an integer

#ifdef __cplusplus
} // namespace tq
#endif
