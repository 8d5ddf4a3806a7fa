// The state of a pass: its `tokens` tokens are at positions position, position + 1, ...; `sampled_tokens` tokens have been
// sampled since the host last wrote this (shaders/sample.comp). Of the tokens before `position` those from window_begin on may
// be in the full-precision window (model/kv/window.h). The rotary table has (cos, sin) of position p and channel pair i at
// rope[p * head_dim / 2 + i].
#define CONTEXT_OF(n, qualifier)                                                                                                 \
    layout(binding = n) qualifier buffer Context {                                                                               \
        uint position;                                                                                                           \
        uint tokens;                                                                                                             \
        uint sampled_tokens;                                                                                                     \
        uint window_begin;                                                                                                       \
        vec2 rope[];                                                                                                             \
    }
#define CONTEXT_AT(n) CONTEXT_OF(n, readonly)
