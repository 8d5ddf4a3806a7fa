// Fast versions of the kernels of model/reference/recurrent.h: the same names and meaning. A token of a slot has the same bits
// however the slot's tokens are divided among passes, and whatever the other rows of a pass.
#pragma once
#include "model/host/network.h"

namespace tq::cpu {

using host::LayerStates;

void conv_silu(ThreadPool&, std::span<float> x, std::span<const float> w, LayerStates& states, std::span<const host::Row> rows);
void l2_norm(ThreadPool&, std::span<float> x, const Recurrent& shape, float eps);
void state_gates(ThreadPool&, std::span<float> beta, std::span<float> alpha, std::span<const float> a, std::span<const float> dt);
void delta_rule(ThreadPool&, std::span<float> y, std::span<const float> x, std::span<const float> beta,
                std::span<const float> alpha, LayerStates& states, std::span<const host::Row> rows);
void settle(LayerStates& states, uint32_t slot, uint32_t from, uint32_t to);
void gated_norm(ThreadPool&, std::span<float> y, std::span<const float> z, std::span<const float> w, float eps);
void split_gates(ThreadPool&, std::span<float> q, std::span<float> gate, std::span<const float> both, uint32_t head_dim);
void apply_gates(ThreadPool&, std::span<float> y, std::span<const float> gate);
void share_gate(ThreadPool&, std::span<float> y, std::span<const float> w, std::span<const float> x);

} // namespace tq::cpu
