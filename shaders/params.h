// The ABI between host and device, on one page: GLSL and C++ both include this file. Four-byte scalars and arrays of them only,
// so every layout rule gives the same bytes. What changes from step to step (position, tokens) is in Context, not here.
#ifdef __cplusplus
#pragma once
#include <cstdint>
namespace tq {
using uint = uint32_t;
#endif

// A slice of the embedding holds rows [first_row, first_row + rows).
struct embed_params { uint cols; uint first_row; uint rows; };

struct rms_norm_params {
    uint cols;
    float eps;
    uint last_only; // 1: only the last token's row, written to row 0
};

// A slice of the matrix gives elements [first_row, first_row + rows) of each output row.
struct matvec_params {
    uint cols;
    uint rows;
    uint first_row;
    uint squares;      // normed: where in x the sums of squares begin, a multiple of 4; MATVEC_RESIDUAL: where in y this slice's go
    uint square_count; // normed: how many there are
    float eps;         // normed: of the norm
    uint scaled;       // MATVEC_RESIDUAL: where in y the scaled values go
};
struct matmul_params { uint cols; uint rows; uint first_row; uint y_cols; };

// Signs: bit i % 32 of word i / 32 set means that channel i is negated. `projection`: QJL's.
struct q_norm_rope_params {
    uint heads;
    float eps;
    float scale;           // 1 / sqrt(head_dim), over the rotation's gain where the keys are rotated
    uint projected;        // where in q the projected queries begin, in floats
    float projected_scale; // scale * sqrt(pi / 2) / head_dim
    uint group;            // conditioned: heads that share a kv head's conditions
    uint signs[8];
    uint projection[8];
};

// Offsets in 32-bit words from the start of the cache slice, as CacheLayout gives them.
struct kv_append_params {
    uint heads;      // kv heads in a row of x
    uint first_head; // the slice holds kv heads [first_head, ...)
    uint capacity;   // tokens per head; window: of the block or the ring
    uint codes;      // where this side's codes begin
    uint scales;     // where this side's scales begin
    float eps;
    uint signs[8];
    uint projection[8];
};

struct kv_decode_params {
    uint heads;
    uint first_head;
    uint capacity;
    uint codes;
    uint scales;
    uint position; // of the first token
    uint signs[8];
    uint projection[8];
};

struct attention_params {
    uint heads;         // query heads in a row of q
    uint first_head;    // first kv head of the slice
    uint capacity;
    uint splits;        // parts that the sequence is cut into
    uint k_codes;
    uint k_scales;
    uint v_codes;
    uint v_scales;
    uint projected;     // as in q_norm_rope_params
    uint window_tokens; // how many tokens of its window a row attends to
    uint ring;          // WINDOW_ONLY: the number of the ring's first vector; `capacity` is that of the pass' block, 0: there is none
    uint ring_tokens;   // per head
    uint part_step;     // the splits' parts are multiples of this long
};

struct attention_combine_params {
    uint heads;
    uint splits;
    uint part_step;       // the parts that the splits make are multiples of this long
    float residual_scale; // sqrt(pi / 2) / head_dim
    uint window_parts;    // where in partials those of the window begin, in floats
    uint signs[8];
    uint projection[8];
};

struct swiglu_params {
    uint cols;
    uint pairs; // 1: gate and up are one buffer of both in turn
};

struct sample_candidates_params { uint vocab_size; };
struct sample_params { uint stretches; };

#ifdef __cplusplus
} // namespace tq
#endif
