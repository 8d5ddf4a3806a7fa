// Where the model is: this step's `tokens` tokens stand at positions position, position + 1, ...; `drawn` tokens have been sampled
// since the host last wrote this (shaders/sample.comp). The rotary table holds (cos, sin) of position p and channel pair i at
// rope[p * head_dim / 2 + i].
#define CONTEXT_OF(n, qualifier)                                                                                                 \
    layout(binding = n) qualifier buffer Context {                                                                               \
        uint position;                                                                                                           \
        uint tokens;                                                                                                             \
        uint drawn;                                                                                                              \
        uint unused;                                                                                                             \
        vec2 rope[];                                                                                                             \
    }
#define CONTEXT_AT(n) CONTEXT_OF(n, readonly)
