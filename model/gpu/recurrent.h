// The kernels that only hybrids have: of recurrent layers (gated DeltaNet: Recurrent of model/config.h), and the gates of
// attention and of an expert that all tokens have.
#pragma once
#include "model/config.h"
#include "model/gpu/pass.h"
#include <span>
#include <vector>

namespace tq::gpu {

// The buffer of the rows of a recurrent layer, for passes of at most `tokens`: offsets of its parts in floats, which every device
// can bind. inputs, outputs: [tokens][channels]; betas, alphas: [tokens][value_heads]; gates: [tokens][value_heads][2]
struct RecurrentRows {
    uint64_t inputs = 0, betas, alphas, outputs, gates, floats;

    RecurrentRows(const Recurrent& shape, uint32_t tokens);
};

// The state of a slot in a layer on the device: the floats of Recurrent, and after them those of tokens that are pending, in a
// ring (model/pass_rows.h): their rows before the convolution and after the norms, [ring][channels] each, and their gates,
// [ring][value_heads][2]. Offsets in floats.
struct RecurrentSlot {
    uint32_t history, inputs, outputs, gates, ring, floats;

    RecurrentSlot(const Recurrent& shape, uint32_t pending);
};

// Buffers and sizes of a layer that its kernels work on. states: [slots]
struct RecurrentStep {
    const Recurrent& shape;
    const Buffer& rows;
    RecurrentRows at;
    const Buffer& states;
    uint32_t pending = 0; // ForwardOptions::pending
};

// outputs = conv_silu and l2_norm of inputs; gates = state_gates of betas and alphas (model/reference/recurrent.h). The states'
// last rows become those of inputs. weights: delta_input_floats(); eps: of the norm, added to the sum of squares
void delta_inputs(Pass&, const RecurrentStep&, const Buffer& weights, float eps);
// Returns the taps of each channel, [channels][4], and after them a, dt, 0, 0 of each value head.
std::vector<float> delta_input_floats(std::span<const float> taps, std::span<const float> a, std::span<const float> dt);

// y = the results of the recurrence on outputs and gates, [tokens][value_heads][head_dim]; the states' matrices become those
// after the last row of each slot. A row has the same bits however the rows of its sequence are divided among passes.
void delta_rule(Pass&, const Buffer& y, const RecurrentStep&);
// Applies the tokens of a slot that are pending, as both kernels do before rows. The pass has one row, at the position after
// them; y and weights are bound, and neither written nor read.
void settle(Pass&, const Buffer& y, const RecurrentStep&, const Buffer& weights);
constexpr uint32_t max_delta_rule_rows = 256; // per dispatch: drivers stop a dispatch that takes seconds

// y = w * y / rms(y) * silu(z) of each head. y, z: [tokens][heads][w.size()], w: 128 floats
void gated_norm(Pass&, const Buffer& y, View z, const Buffer& w, uint32_t heads, float eps);

// q[t][head] and gate[t][head] = the halves of both[t][head], each of head_dim. cols: of a row of q
void split_gates(Pass&, const Buffer& q, const Buffer& gate, const Buffer& both, uint32_t cols);
// y[t] *= sigmoid(gate[t]). y, gate: [tokens][cols]
void apply_gates(Pass&, const Buffer& y, const Buffer& gate, uint32_t cols);

// y[t] *= sigmoid(w . x[t]). y: [tokens][cols]; x: [tokens][x_cols], w: [x_cols]
void share_gate(Pass&, const Buffer& y, const Buffer& w, const Buffer& x, uint32_t cols, uint32_t x_cols);

} // namespace tq::gpu
