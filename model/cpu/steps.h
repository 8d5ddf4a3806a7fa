// The steps of model/reference/steps.h on the fast kernels.
#pragma once
#include "model/cpu/kernels.h"

namespace tq::cpu {

using host::Activations, host::GatedLinear, host::Layer, host::Linear, host::Network, host::Norm, host::Pass, host::Routes;

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

// In model/cpu/forward.cpp: the halves of a layer (model/halves.h), which add to the hidden state h of every token.
void attention_half(Pass&, const Layer& layer, Activations& x);
void feed_forward_half(Pass&, const Layer& layer, Activations& x);
// From token ids to h, and from there to logits, or only to a.
void layers(Pass&, const Network& net, Activations& x);
void head(Pass&, const Network& net, Activations& x);
void last_norm(Pass&, const Network& net, Activations& x);

} // namespace tq::cpu
