// The definitions of the kernels of recurrent layers and of gates, in the manner of model/reference/kernels.h. A layer's state
// (host::LayerStates) is advanced token by token, in this order of operations; devices round differently at most. Which tokens
// advance it is in the rows (StateRange of model/pass_rows.h): those that are pending come first, as if they were rows before
// these, and rows from state.end on are kept as pending; they see a state that is then forgotten.
#pragma once
#include "model/host/network.h"

namespace tq::ref {

using host::LayerStates, host::Row, host::SlotRows;

// x[t][channel] = silu(sum over j of w[channel][j] * p_(t - kernel + 1 + j)[channel]), the oldest token first, in place. p: x as
// it was given, and for the tokens before these rows the history of the row's slot, which then has the last ones. Rows of a slot
// follow each other. p is kept of rows that stay pending. x: [rows][channels], w: [channels][conv_kernel]
void conv_silu(ThreadPool&, std::span<float> x, std::span<const float> w, LayerStates& states, std::span<const Row> rows);

// x = x / sqrt(sum of x^2 + eps) for the head_dim channels of each head of queries and keys, queries also times 1 /
// sqrt(head_dim). x: [rows][channels]; values stay
void l2_norm(ThreadPool&, std::span<float> x, const Recurrent& shape, float eps);

// beta = sigmoid(beta): how much of a value is written; alpha = exp(a * softplus(alpha + dt)): how much of the state stays.
// beta, alpha: [rows][value_heads]; a, dt: [value_heads]
void state_gates(ThreadPool&, std::span<float> beta, std::span<float> alpha, std::span<const float> a, std::span<const float> dt);

// For each token and value head, with its state M[key][value], the query q and the key k of its key head, and its value v:
//   M = alpha * M;  u = beta * (v - k M);  M = M + k u;  y = q M
// Sums over keys are in their order. x, beta and alpha are kept of rows that stay pending. y: [rows][value_heads][head_dim], x:
// [rows][channels], beta, alpha: [rows][value_heads]
void delta_rule(ThreadPool&, std::span<float> y, std::span<const float> x, std::span<const float> beta,
                std::span<const float> alpha, LayerStates& states, std::span<const Row> rows);

// Updates the state of a slot by pending tokens alone, as conv_silu() and delta_rule() would: SettleStates.
void settle(LayerStates& states, uint32_t slot, uint32_t from, uint32_t to);

// y[t][head] = w * y[t][head] / rms(y[t][head]) * silu(z[t][head]). y, z: [rows][heads][w.size()]
void gated_norm(ThreadPool&, std::span<float> y, std::span<const float> z, std::span<const float> w, float eps);

// Divides the rows of a gated attn_q: q[i] = both[i][0 ... head_dim - 1], gate[i] = both[i][head_dim ... 2 head_dim - 1].
// q, gate: [rows * heads][head_dim]
void split_gates(ThreadPool&, std::span<float> q, std::span<float> gate, std::span<const float> both, uint32_t head_dim);

// y = y * sigmoid(gate)
void apply_gates(ThreadPool&, std::span<float> y, std::span<const float> gate);

// y[t] = y[t] * sigmoid(w . x[t]): the share of the expert that all tokens have. y: [rows][cols], x: [rows][w.size()]
void share_gate(ThreadPool&, std::span<float> y, std::span<const float> w, std::span<const float> x);

} // namespace tq::ref
