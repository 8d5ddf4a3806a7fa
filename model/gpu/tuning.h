// Sizes of workgroups and tiles, chosen from what the device says of itself; no vendor is named, and one driver
// (attention_per_lane).
#pragma once
#include "runtime/capabilities.h"
#include <cstdint>

namespace tq::gpu {

// What the device is, as far as kernels ask.
struct DeviceFacts {
    uint32_t shared_bytes;    // shared memory that a workgroup may have
    uint32_t subgroup;        // invocations of a subgroup of the variants for subgroups; 0: they do not run
    uint32_t matrix_subgroup; // invocations of a subgroup that multiplies matrices of fp16; 0: there are none
    uint32_t matrix_side;     // of these
    bool texel_buffers;       // texel-buffer variants (shaders/read.glsl) run, where what they read is no longer than:
    uint64_t texel_range_bytes;
    bool attention_per_lane; // that kernel runs, too: Mesa's LLVM builds its unrolled loops in a second, SwiftShader in
                             // minutes

    bool operator==(const DeviceFacts&) const = default;
};

// Which kernels run and in what tiles, family by family: all of it is measured, and stored (tuning_fields.h).
struct KernelChoices {
    uint32_t workgroup; // invocations of the row, element and head kernels
    // matvec
    uint32_t matvec_lanes;      // invocations that share a row; 1 where texel_buffers
    uint32_t matvec_rows;       // rows that they make at a time
    uint32_t weight_interleave; // rows of a weight matrix that lie word by word in turn (device_layout.h)
    // matmul
    uint32_t matmul_rows;   // rows that one invocation makes
    uint32_t matmul_tokens; // tokens whose products one invocation makes
    bool matmul_tiled;      // more tokens are made by matmul_tiled, whose tile shared_bytes gives (matmul.h)
    bool matmul_coopmat;    // matmul_coopmat makes them instead
    // attention
    uint32_t attention_rows;         // most query rows that share a decoded key
    uint32_t attention_keys;         // keys that an invocation scores at a time
    uint32_t attention_coopmat_rows; // query rows of a prompt that share a workgroup of attention_coopmat; 0: attention has them
    uint32_t splits;                 // parts of the sequence that a token attends to

    bool operator==(const KernelChoices&) const = default;
};

// How a forward pass goes about its work. batch_size and fold_norms are measured, too.
struct PassPolicy {
    uint32_t batch_size;  // tokens of a prefill block, by default
    uint32_t short_block; // a block of at most so many tokens attends in splits, too
    bool fold_norms;      // in decode rms_norm is part of the matvec before it and of the one behind
    bool sampling;        // tokens are sampled on the device, not from logits that the host reads

    bool operator==(const PassPolicy&) const = default;
};

struct Tuning : DeviceFacts, KernelChoices, PassPolicy {
    bool operator==(const Tuning&) const = default;
    // Whether matrices of fp16 make a block's products or attention.
    bool rounds_to_halves() const { return matmul_coopmat || attention_coopmat_rows != 0; }
};

Tuning choose_tuning(const Capabilities& device);

} // namespace tq::gpu
