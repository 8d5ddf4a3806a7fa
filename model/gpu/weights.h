// Weights on the device: matrices repacked for the shaders and divided by rows into slices within the limit of a binding.
#pragma once
#include "model/load.h"
#include "runtime/device.h"
#include <optional>

namespace tq::gpu {

inline constexpr uint32_t max_slice_rows = 65535; // one workgroup per row fits every device's grid

struct MatrixSlice {
    Buffer buffer;
    uint32_t first_row, rows;
};

struct Matrix {
    GgmlType type;
    uint32_t rows, cols, interleave; // device_layout.h
    std::vector<MatrixSlice> slices;
    float scale_unit = 1; // device_layout.h
};

// Returns the index of a type's kernels in a Family.
size_t family_member(GgmlType type);

// Matrices of a recurrent layer, as in RecurrentWeights; inputs: delta_input_floats(), norm: ssm_norm.
struct RecurrentMatrices {
    Matrix attn_qkv, attn_gate, ssm_beta, ssm_alpha, ssm_out;
    Buffer inputs, norm; // fp32
};

// The expert that all tokens have; gate_up: as LayerMatrices::ffn_gate_up.
struct SharedExpertMatrices {
    Buffer gate; // fp32
    std::vector<Matrix> gate_up;
    Matrix down;
};

struct LayerMatrices {
    Matrix attn_q, attn_k, attn_v, attn_output; // without rows in a recurrent layer
    std::vector<Matrix>
        ffn_gate_up; // one, whose rows 2 i and 2 i + 1 are rows i of ffn_gate and ffn_up; or both, if their types differ
    Matrix ffn_down;
    Buffer attn_norm, ffn_norm; // fp32
    // Empty if the model has none. Each cache conditions and uploads them: HeadNormBuffers
    std::vector<float> attn_q_norm, attn_k_norm, k_bias;
    std::optional<Buffer> attn_q_bias, attn_k_bias, attn_v_bias; // fp32
    std::optional<Matrix> ffn_gate_inp;                          // of experts, whose matrices the others are stacks of
    AttentionSquares attention_squares;
    std::optional<RecurrentMatrices> recurrent = {};
    std::optional<SharedExpertMatrices> shared = {};
};

// The head for multi-token prediction, as MtpWeights; empty if the model's own serve.
struct MtpMatrices {
    Buffer enorm, hnorm; // fp32
    Matrix eh_proj;
    LayerMatrices layer;
    std::optional<Buffer> norm; // fp32
    std::optional<Matrix> token_embd, output;
};

struct DeviceWeights {
    Matrix token_embd;
    std::vector<LayerMatrices> layers;
    Buffer output_norm;
    std::vector<Matrix> own_output; // the head's own matrix; empty when tied
    std::optional<MtpMatrices> mtp = {};

    const Matrix& output() const { return own_output.empty() ? token_embd : own_output[0]; }
};

// Returns the number of bytes that upload_weights will allocate.
uint64_t device_bytes(const Weights& weights, uint32_t interleave);

// Reads, checks and repacks on all threads of `pool`, while the device copies finished pieces. Throws Error when memory runs
// out, or naming the tensor and row of a weight that is not finite; and LoadStopped.
DeviceWeights upload_weights(Device& device, ThreadPool& pool, const Weights& weights, uint32_t interleave,
                             const LoadProgress& on_progress);

} // namespace tq::gpu
