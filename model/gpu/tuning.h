// Sizes of workgroups and tiles, chosen by the device's reported properties; no vendor is named, and only one driver
// (attention_per_lane).
#pragma once
#include "runtime/capabilities.h"
#include <cstdint>

namespace tq::gpu {

// The properties of the device that kernels depend on.
struct DeviceFacts {
    uint32_t shared_bytes;    // maximum shared memory of a workgroup
    uint32_t max_workgroup;   // maximum of its invocations that kernels use
    bool float16;             // fp16 arithmetic
    bool int8_dot;            // dot products of four int8 numbers in a word
    uint32_t subgroup;        // subgroup size of the subgroup variants; 0: they cannot run
    uint32_t matrix_subgroup; // size of a subgroup that multiplies fp16 matrices; 0: there are none
    MatrixShape matrix;       // of these matrices
    bool texel_buffers;       // texel-buffer variants (shaders/read.glsl) run, if the buffers that they read are at most:
    uint64_t texel_range_bytes;
    bool attention_per_lane; // that kernel runs, too: Mesa's LLVM builds its unrolled loops in a second, SwiftShader in
                             // minutes

    bool operator==(const DeviceFacts&) const = default;
};

// The kernels that run and their tiles, by family: all of it is measured, and stored (tuning_fields.h).
struct KernelChoices {
    uint32_t workgroup; // invocations of the row, element and head kernels
    // matvec
    uint32_t matvec_lanes;  // minimum of invocations that share a row; 1 if texel_buffers
    uint32_t matvec_loads;  // minimum of rows x lanes in flight; a matrix with fewer rows uses more lanes per row
    uint32_t matvec_rows;   // rows that they compute at a time
    uint32_t matvec_blocks; // times 32 weights of a row that an invocation decodes at a time
    uint32_t matvec_dot;    // invocations of a workgroup of matvec_dot, for weights that are quantised; 0: matvec runs instead
    uint32_t weight_interleave; // rows of a weight matrix that are interleaved word by word (device_layout.h)
    // matmul
    uint32_t matmul_rows;   // rows per invocation
    uint32_t matmul_tokens; // tokens per invocation
    bool matmul_tiled;      // matmul_tiled for more tokens, with the tile that fits shared_bytes (matmul.h)
    bool matmul_dot;        // matmul_dot instead, for weights that are quantised
    bool matmul_coopmat;    // matmul_coopmat instead of all of these
    uint32_t matmul_ahead;  // steps: 1: it fetches the next columns while it multiplies these; 2: it decodes them, too
    uint32_t matmul_blocks; // times 32 columns that matmul_coopmat multiplies at a time, if its tile then fits shared_bytes
    // attention
    uint32_t attention_rows;         // maximum query rows that share a decoded key
    uint32_t attention_keys;         // keys that an invocation scores at a time
    uint32_t decode_subgroups;       // subgroups of a workgroup of attention_decode; 0: attention runs instead
    uint32_t decode_heads;           // maximum query heads per workgroup of attention_decode
    uint32_t attention_coopmat_rows; // query rows of a prompt in a workgroup of attention_coopmat; 0: attention runs instead
    uint32_t splits;                 // splits of the sequence that a token attends to

    bool operator==(const KernelChoices&) const = default;
};

// Settings of a forward pass. batch_size and fold_norms are measured, too.
struct PassPolicy {
    uint32_t batch_size;  // default tokens of a prefill block
    uint32_t short_block; // blocks of at most this many tokens use splits, too
    bool fold_norms;      // in decode rms_norm is part of the matvec before it and the one after
    bool sampling;        // tokens are sampled on the device, not from logits that the host reads

    bool operator==(const PassPolicy&) const = default;
};

struct Tuning : DeviceFacts, KernelChoices, PassPolicy {
    bool operator==(const Tuning&) const = default;
    // Whether products or attention are computed in fp16, or products with inputs of 15 bits.
    bool rounds_to_fp16() const {
        return matmul_coopmat || matmul_dot || matvec_dot != 0 || attention_coopmat_rows != 0 || decode_subgroups != 0;
    }
};

Tuning choose_tuning(const Capabilities& device);

} // namespace tq::gpu
