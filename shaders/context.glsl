// Where the model is: this step's `tokens` tokens stand at positions position, position + 1, ...; `drawn` tokens have been sampled
// since the host last wrote this (shaders/sample.comp). Of the tokens before `position` those from recent_begin on may be read as
// recent ones (model/kv/recent.h). The rotary table holds (cos, sin) of position p and channel pair i at
// rope[p * head_dim / 2 + i].
#define CONTEXT_OF(n, qualifier)                                                                                                 \
    layout(binding = n) qualifier buffer Context {                                                                               \
        uint position;                                                                                                           \
        uint tokens;                                                                                                             \
        uint drawn;                                                                                                              \
        uint recent_begin;                                                                                                       \
        vec2 rope[];                                                                                                             \
    }
#define CONTEXT_AT(n) CONTEXT_OF(n, readonly)
