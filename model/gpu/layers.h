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

// What a pass runs on.
struct Network {
    const Config& config;
    const DeviceWeights& weights;
    const KvCache& cache;
    const Scratch& scratch;
    const Buffer& ids; // uint32 [tokens]
};

// From ids to the hidden state h of every token. Where norms are folded, what stands behind h for the output's norm is returned.
std::optional<Normed> layers(Pass&, Taps&, const Network&);

// Logits of the block's last token; `normed` is what layers() returned.
void head(Pass&, Taps&, const Network&, const std::optional<Normed>& normed);

} // namespace tq::gpu
