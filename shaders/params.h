// The ABI between host and device, on one page: GLSL and C++ both include this file. Only four-byte scalars and arrays of them,
// so every layout rule gives the same bytes. Values that change with each pass (position, tokens) are in Context.
#ifdef __cplusplus
#pragma once
#include <cstdint>
namespace tq {
using uint = uint32_t;
#endif

// A slice of the embedding holds rows [first_row, first_row + rows). scale_unit, here and below: of the weights (device_layout.h)
struct embed_params { uint cols; uint first_row; uint rows; float scale_unit; };

struct rms_norm_params {
    uint cols;
    float eps;
    uint in_head; // 1: row t of y is the norm of row head_row(t) of x
    uint y_cols;  // row length of y; the results begin at y_first
    uint y_first;
};

struct broadcast_params { uint cols; };

// A slice of the matrix computes elements [first_row, first_row + rows) of each output row.
struct matvec_params {
    uint cols;
    uint rows;
    uint first_row;
    uint squares;      // normed: offset of the sums of squares in x, a multiple of 4; MATVEC_RESIDUAL: of this slice's in y
    uint square_count; // normed: their number
    float eps;         // normed: of the norm
    uint scaled;       // MATVEC_RESIDUAL: offset of the scaled values in y
    uint y_cols;       // of several vectors: floats between their results
    float scale_unit;
    uint expert_rows;  // of experts, here and below (rows.glsl)
    uint pairs_per_x;
};
struct matmul_params {
    uint cols;
    uint rows;
    uint first_row;
    uint y_cols;
    float scale_unit;
    uint expert_rows;
    uint pairs_per_x;
    uint tiles_at; // offset of the tiles in the routes, in words
};
// rows_per_token: rows of x; more than 1 if each of a token's experts has its own
struct inputs_to_fp16_params { uint cols; uint rows_per_token; uint largest; };
struct inputs_to_int8_params { uint cols; uint rows_per_token; };
#define MAX_MATRICES 32 // of sums in a subgroup (each_matrix.glsl)
struct matmul_coopmat_params {
    uint cols;
    uint rows;
    uint first_row;
    uint y_cols;
    float scale_unit;
    uint expert_rows;
    uint pairs_per_x;
    uint tiles_at;
    uint largest; // offset in x of the tokens' largest magnitudes, in words
};

// Offsets in words of the routes (routes.h).
struct route_params { uint count; uint used; uint weights_at; uint normalise; }; // normalise: 1: divide by the sum of the chosen
struct group_routes_params { uint count; uint tile; uint ordered_at; uint tiles_at; };
struct add_experts_params { uint cols; uint used; uint weights_at; };

// `signs`: bit i % 32 of word i / 32 set means that channel i is negated.

// Conditioning by q_norm_rope: the mean of the page is subtracted from keys; queries have their product with it.
#define CONDITION_NONE 0
#define CONDITION_KEYS 1
#define CONDITION_QUERIES 2

struct q_norm_rope_params {
    uint heads;
    float eps;             // of the norm; below 0: heads have none
    float scale;           // 1 / sqrt(head_dim), over the rotation's gain if the keys are rotated
    uint group;            // conditioned: query heads that share a kv head's channel scaling
    uint page_scores;      // offset of the page scores [rows][heads][pages] in q, in floats
    uint pages;            // of a head; 0: no page scores, since keys lack no mean
    float page_scale;      // 1 / sqrt(head_dim)
    uint signs[8];
};

// Offsets in 32-bit words from the start of the cache slice, as CacheLayout gives them. A slice's vectors are
// [page][slice_heads][PAGE].
struct kv_append_params {
    uint heads;       // kv heads in a row of x
    uint first_head;  // the slice holds kv heads [first_head, first_head + slice_heads)
    uint slice_heads;
    uint capacity;    // window: tokens per head of the block or a ring
    uint codes;       // offset of this side's codes
    uint scales;      // offset of this side's scales
    uint sinks;       // offset of the fp16 vectors of the pages' first tokens; 0: none are kept
    float eps;        // as in q_norm_rope_params
    uint signs[8];
};

struct kv_decode_params {
    uint heads;
    uint first_head;
    uint slice_heads;
    uint codes;
    uint scales;
    uint signs[8];
};

struct attention_params {
    uint heads;         // query heads in a row of q
    uint first_head;    // first kv head of the slice
    uint slice_heads;   // its number of kv heads
    uint splits;        // number of splits of the sequence
    uint k_codes;
    uint k_scales;
    uint v_codes;
    uint v_scales;
    uint window_tokens; // number of window tokens that a row attends to
    uint ring;          // WINDOW_ONLY: number of the first vector of the slots' rings
    uint ring_tokens;   // per head
    uint block_tokens;  // per head of the pass's block; 0 without one
    uint split_step;    // the splits' lengths are multiples of this
    uint sinks;         // first positions not read here: FIRST_TOKENS if attention_sink reads them; 1 in a head for drafts; or 0
    uint page_scores;   // as in q_norm_rope_params
    uint pages;
};

struct attention_sink_params {
    uint heads;       // as in attention_params
    uint first_head;
    uint slice_heads;
    uint group;       // query heads that share a kv head
    uint k_sinks;     // offsets of the fp16 vectors of the pages' first tokens
    uint v_sinks;
    uint page_scores; // as in q_norm_rope_params
    uint pages;
};

struct attention_combine_params {
    uint heads;
    uint splits;
    uint split_step;      // the splits' lengths are multiples of this
    uint window_partials; // offsets in `partials` of the window's partials, and of the first tokens', in floats
    uint sink_partials;
    uint group;           // scaled: query heads that share the scales of a kv head's values
    uint signs[8];
};

struct swiglu_params {
    uint cols;
    uint pairs; // 1: gate and up are interleaved in one buffer
};

// Gated DeltaNet. Offsets in floats in the rows' buffer (model/gpu/recurrent.h), and in the state of a slot.
struct delta_inputs_params {
    uint channels;     // in heads of 128: queries, keys, values
    uint key_heads;
    uint value_heads;
    uint inputs;       // [rows][channels]
    uint betas;        // [rows][value_heads], as alphas
    uint alphas;
    uint outputs;      // [rows][channels]
    uint gates;        // [rows][value_heads][2]: beta, alpha
    uint state_floats; // of a slot's state
    uint history;      // the last three rows of inputs, [3][channels], the oldest first
    uint pending_inputs; // of a slot's tokens that are pending: [ring][channels], as pending_outputs, and [ring][value_heads][2]
    uint pending_outputs;
    uint pending_gates;
    uint ring;
    uint settle;       // 1: there are no rows; row 0 names a slot, whose pending tokens alone are applied
    float eps;
    float query_scale; // 1 / sqrt(128)
};
struct delta_rule_params {
    uint channels;
    uint key_heads;
    uint value_heads;
    uint tiled;        // 1: value head h has key head h % key_heads; 0: h / (value_heads / key_heads)
    uint inputs;       // the outputs of delta_inputs
    uint gates;
    uint state_floats;
    uint separate;     // 1: workgroups in y are rows, and that of a slot's first row has all its rows; 0: they are spans
    uint first_row;    // of a block's: rows [first_row, first_row + max_rows)
    uint max_rows;
    uint pending_outputs; // as above
    uint pending_gates;
    uint ring;
    uint settle;
};
struct states_before_params { uint cols; uint ring; }; // of the states that are kept of a slot
struct keep_states_params { uint cols; uint ring; };
struct gated_norm_params { uint heads; float eps; };
struct split_gates_params { uint cols; uint head_dim; }; // cols: of q
struct apply_gates_params { uint cols; };
struct share_gate_params { uint cols; uint x_cols; };

struct sample_candidates_params { uint vocab_size; };
struct sample_all_params { uint vocab_size; };
struct sample_params { uint stretches; uint use_words; }; // use_words: offset of the uses in id_words

#ifdef __cplusplus
} // namespace tq
#endif
