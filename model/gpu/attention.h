// Attention on the compressed cache.
#pragma once
#include "model/gpu/cache.h"
#include "model/gpu/kv_append.h"
#include "model/gpu/pass.h"

namespace tq::gpu {

// y[t][head] = softmax(q . K) V over the positions of the row's slot up to its own, on the stored codes. q: the output of
// q_norm_rope. y: [tokens][heads][head_dim]. partials: at least partials_bytes() for these rows; a larger buffer allows more
// splits for a short block. page_scores: as q_norm_rope filled them; empty if the layer's keys are not mean-centred. v_scales:
// those of v_append; the result is multiplied by them.
void attention(Pass&, const Buffer& y, View partials, const Buffer& q, const PageScores& page_scores, const DeviceStorage& cache,
               uint32_t layer, uint32_t heads, uint32_t kv_heads, const Buffer* v_scales = nullptr);

// Returns the size in bytes of `partials` for passes of up to `tokens` rows, and of up to `separate` separate ones:
// Tuning::splits partials for each separate row, one partial per token for a block; one more if the cache has a window, and one
// more if it has codes (`sinks`). A larger buffer gives short blocks more splits.
uint64_t partials_bytes(const Tuning&, uint32_t tokens, uint32_t separate, uint32_t heads, uint32_t head_dim, bool window,
                        bool sinks);

// The properties that attention kernels are chosen by. group: query heads per kv head; tokens: of a block; 1: separate rows.
struct AttentionShape {
    uint32_t head_dim;
    KvTypes types;
    uint32_t group, tokens;
};

enum class AttentionKernel {
    vectors, // attention, or its variants for subgroups and for texel buffers
    per_lane,
    coopmat,
    decode, // attention_decode, for separate rows
};

// The chosen kernel and its shape.
struct AttentionPlan {
    AttentionKernel kernel;
    uint32_t heads, tokens; // those of a kv head's query heads, and of the tokens, that share a workgroup
    uint32_t split_step;    // the lengths of splits are multiples of this number of keys
    uint32_t subgroups = 0; // coopmat: those of a workgroup; one, or two if heads are long, for each matrix.m rows
    uint32_t copies = 0;    // decode: number of copies of the tables of levels in shared memory
};
AttentionPlan attention_plan(const Tuning&, const AttentionShape&);

} // namespace tq::gpu
