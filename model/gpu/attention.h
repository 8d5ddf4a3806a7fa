// Attention on the stored codes.
#pragma once
#include "model/gpu/cache.h"
#include "model/gpu/pass.h"

namespace tq::gpu {

// y[t][head] = softmax(q . K) V over the positions up to the token's own, on the stored codes. q: as q_norm_rope leaves it,
// y: [tokens][heads][head_dim], partials: of partials_bytes() for as many tokens or more, which give a short block more splits
void attention(Pass&, const Buffer& y, View partials, const Buffer& q, const KvCache& cache, uint32_t layer, uint32_t heads,
               uint32_t kv_heads);

// Bytes of `partials` for passes of up to `tokens` tokens: Tuning::splits parts for one token, one part a token for a block, and
// one more where the cache has a window. projected: some layer's values have QJL's bit, which doubles a part. A larger buffer
// gives short blocks more splits.
uint64_t partials_bytes(const Tuning&, uint32_t tokens, uint32_t heads, uint32_t head_dim, bool projected, bool window);

// What a dispatch of attention is chosen by. group: query heads per kv head.
struct AttentionShape {
    uint32_t head_dim;
    KvTypes types;
    uint32_t group, tokens;
};

enum class AttentionKernel {
    vectors, // attention, or its variants for subgroups and for texel buffers
    per_lane,
    coopmat,
};

// How it runs.
struct AttentionPlan {
    AttentionKernel kernel;
    uint32_t heads, tokens; // of a kv head's query heads, and of the tokens, those that share a workgroup
    uint32_t part_step;     // the parts that a sequence is cut into are multiples of so many keys
    uint32_t strips = 0;    // of coopmat: subgroups in a workgroup, each with matrix_side of the rows
};
AttentionPlan attention_plan(const Tuning&, const AttentionShape&);

} // namespace tq::gpu
