// The kernels of a forward pass in their order: what model/gpu/forward.cpp records.
#pragma once
#include "model/gpu/plan.h"
#include "model/gpu/taps.h"

namespace tq::gpu {

// The activations of a block of `tokens` tokens, fp32.
struct Scratch {
    Buffer h, a, q, k, v, attn, partials, gate_up, ffn, logits, candidates, draw;
    uint32_t h_floats; // of h, behind which normed_floats() follow where norms are folded
};

Scratch make_scratch(Device& device, const ScratchBytes& bytes);

// The weights and conditions of each layer's norms of queries and keys, as kernels take them (HeadNorm). They are those of a
// cache, not of the weights, so that caches that are conditioned otherwise can share these.
struct HeadNormBuffers {
    Buffer q, k;
    uint32_t kv_heads; // 0: not conditioned
};
std::vector<HeadNormBuffers> upload_head_norms(Device& device, const DeviceWeights& weights, const KvOptions& kv,
                                               uint32_t kv_heads);

// What a pass runs on.
struct Network {
    const Config& config;
    const DeviceWeights& weights;
    const std::vector<HeadNormBuffers>& head_norms;
    const KvCache& cache;
    const Scratch& scratch;
    const Buffer& ids; // uint32 [tokens]
};

// From ids to the hidden state h of every token. Where norms are folded, what stands behind h for the output's norm is returned.
std::optional<Normed> layers(Pass&, Taps&, const Network&);

// Logits of the block's last token; `normed` is what layers() returned.
void head(Pass&, Taps&, const Network&, const std::optional<Normed>& normed);

} // namespace tq::gpu
