// The tensors that only layers of hybrids have, in the packings of their files.
#pragma once
#include "model/weights/weights.h"

namespace tq {

// `blk`: "blk.3.", with which the names of the layer's tensors begin. Both throw as TensorSource does.
RecurrentWeights collect_recurrent(TensorSource& source, const Config& config, const std::string& blk);
SharedExpertWeights collect_shared_expert(TensorSource& source, const Config& config, const std::string& blk);

// Returns ssm_beta and ssm_alpha, whose value heads are grouped by key head, in one, in F32: blk.3.ssm_ba.weight of qwen3next's
// GGUF files, which collect_recurrent() divides.
Tensor packed_gates(const Tensor& beta, const Tensor& alpha, const Recurrent& recurrent);

// Returns GGUF's form of a PyTorch vector. PyTorch's norms of hidden states and of heads lack 1, and its rates of decay are given
// as A_log; GGUF has -exp(A_log).
Tensor from_pytorch(Tensor vector);

// The two halves of the matrices of all experts that a file has in one, blk.3.ffn_gate_up_exps.weight: the rows of ffn_gate, then
// those of ffn_up, expert by expert.
struct GateUpExperts {
    Tensor gate, up;
};
GateUpExperts collect_gate_up_experts(TensorSource& source, const Config& config, const std::string& blk);

} // namespace tq
