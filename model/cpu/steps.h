// The steps of model/reference/steps.h on the fast kernels.
#pragma once
#include "model/cpu/kernels.h"
#include "model/cpu/recurrent.h"

namespace tq::cpu {

using host::Activations, host::GatedLinear, host::Layer, host::Linear, host::Network, host::Norm, host::Pass, host::Recurrence,
    host::Routes, host::Mtp;

void embed(Pass&, std::vector<float>& h, const Linear& embedding, std::span<const uint32_t> ids);
void rms_norm(Pass&, std::vector<float>& y, const std::vector<float>& x, const Norm& w);

struct NamedProduct {
    std::vector<float>& y;
    const Linear& w;
};
void matmul(Pass&, std::initializer_list<NamedProduct> products, const std::vector<float>& x);
void matmul_add(Pass&, std::vector<float>& h, const Linear& w, const std::vector<float>& x);
void gated_matmul(Pass&, std::vector<float>& y, const GatedLinear& w, const std::vector<float>& x);
void route(Pass&, Routes& routes, const Linear& router, const std::vector<float>& x);
void gated_matmul(Pass&, std::vector<float>& y, const GatedLinear& w, const std::vector<float>& x, const Routes& routes);
void matmul_add(Pass&, std::vector<float>& h, const Linear& w, const std::vector<float>& x, const Routes& routes);

void kv_append(Pass&, const Layer& layer, std::vector<float>& k, std::vector<float>& v);
void q_norm_rope(Pass&, const Layer& layer, std::vector<float>& q, PageScores& page_scores);
void attention(Pass&, const Layer& layer, std::vector<float>& y, const std::vector<float>& q, const PageScores& page_scores);

void split_gates(Pass&, std::vector<float>& q, std::vector<float>& gate, const std::vector<float>& q_gate);
void apply_gates(Pass&, std::vector<float>& y, const std::vector<float>& gate);

void mtp_inputs(Pass&, const Mtp& mtp, std::vector<float>& y, const std::vector<float>& e, const std::vector<float>& states);
void keep_states(Pass&, const Mtp& mtp, const std::vector<float>& states);

void delta_inputs(Pass&, const Layer& layer, std::vector<float>& qkv, std::vector<float>& beta, std::vector<float>& alpha);
void delta_rule(Pass&, const Layer& layer, std::vector<float>& y, const std::vector<float>& qkv, const std::vector<float>& beta,
                const std::vector<float>& alpha);
void gated_norm(Pass&, const Layer& layer, std::vector<float>& y, const std::vector<float>& z);
void share_gate(Pass&, const Layer& layer, std::vector<float>& y, const std::vector<float>& x);

// In model/cpu/forward.cpp: the halves of a layer (model/halves.h), which add to the hidden state h of every token. The first is
// attention or a recurrence.
void first_half(Pass&, const Layer& layer, Activations& x);
void feed_forward_half(Pass&, const Layer& layer, Activations& x);
// From token ids to h, and from there to logits, or only to a; and from the ids that follow tokens of slots to the logits after
// them, by the head for multi-token prediction.
void layers(Pass&, const Network& net, Activations& x);
void head(Pass&, const Network& net, Activations& x);
void last_norm(Pass&, const Network& net, Activations& x);
void draft(Pass&, const Network& net, Activations& x);

} // namespace tq::cpu
