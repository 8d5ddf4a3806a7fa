// The steps of a forward pass: kernels with the arguments of a pass, a layer and its weights. steps.h of model/reference and of
// model/cpu include this, each in its namespace; model/gpu/steps.h has the same, recorded.

using host::Activations, host::GatedLinear, host::Layer, host::Linear, host::Network, host::Norm, host::Pass, host::Recurrence,
    host::Routes, host::Mtp;

// h and a are [rows][hidden_size], q and attn [rows][heads][head_dim], k and v [rows][kv heads][head_dim], ffn
// [rows][intermediate_size] and logits [rows][vocab_size], fp32. A row is a token of a slot. The head is a pass of its own, over
// those rows whose logits are wanted.

// h[t] = the embedding of ids[t]
void embed(Pass&, std::vector<float>& h, const Linear& embedding, std::span<const uint32_t> ids);

// y[t] = the norm of x[t]
void rms_norm(Pass&, std::vector<float>& y, const std::vector<float>& x, const Norm& w);

struct NamedProduct {
    std::vector<float>& y;
    const Linear& w;
};
// y[t] = w x[t] + the bias of w, if it has one, for each product
void matmul(Pass&, std::initializer_list<NamedProduct> products, const std::vector<float>& x);

// h[t] += w x[t]
void matmul_add(Pass&, std::vector<float>& h, const Linear& w, const std::vector<float>& x);

// y[t] = silu(gate x[t]) * (up x[t])
void gated_matmul(Pass&, std::vector<float>& y, const GatedLinear& w, const std::vector<float>& x);

// Chooses the experts of every token, by the products of the router's rows with x.
void route(Pass&, Routes& routes, const Linear& router, const std::vector<float>& x);

// The same for experts. y[t][rank] = silu(gate x[t]) * (up x[t]) by the matrices of the token's expert of each rank; and h[t] +=
// sum of weight * (w x[t][rank]) over the ranks, in their order.
void gated_matmul(Pass&, std::vector<float>& y, const GatedLinear& w, const std::vector<float>& x, const Routes& routes);
void matmul_add(Pass&, std::vector<float>& h, const Linear& w, const std::vector<float>& x, const Routes& routes);

// Stores keys, after k-norm (if the architecture has it), RoPE and channel scaling, and values, after theirs, at the slots and
// positions of the rows.
void kv_append(Pass&, const Layer& layer, std::vector<float>& k, std::vector<float>& v);

// Applies q-norm (if the architecture has it), RoPE, channel scaling, the rotation of the stored keys and the scale of scores, in
// place.
void q_norm_rope(Pass&, const Layer& layer, std::vector<float>& q, PageScores& page_scores);

// y[t][head] = softmax(q . K) V over the positions of the row's slot up to its own, with the values as they were before their
// scaling
void attention(Pass&, const Layer& layer, std::vector<float>& y, const std::vector<float>& q, const PageScores& page_scores);

// Gated attention: attn_q gives q_gate, which holds each head's query and gate; y *= sigmoid(gate).
void split_gates(Pass&, std::vector<float>& q, std::vector<float>& gate, const std::vector<float>& q_gate);
void apply_gates(Pass&, std::vector<float>& y, const std::vector<float>& gate);

// Inputs of the head for multi-token prediction: y[t] = the norm of e[t], and after it the norm of the state of the token before:
// that of the row before in the pass, or the kept one; zeros at the start of a sequence. Then the states of the rows' tokens are
// kept. y: [rows][2 hidden_size]
void mtp_inputs(Pass&, const Mtp& mtp, std::vector<float>& y, const std::vector<float>& e, const std::vector<float>& states);
void keep_states(Pass&, const Mtp& mtp, const std::vector<float>& states);

// Steps of a recurrent layer, whose states are those of the rows' slots (model/reference/recurrent.h). qkv is [rows][channels], y
// and z are [rows][value heads][head_dim], beta and alpha [rows][value heads].
void delta_inputs(Pass&, const Layer& layer, std::vector<float>& qkv, std::vector<float>& beta, std::vector<float>& alpha);
void delta_rule(Pass&, const Layer& layer, std::vector<float>& y, const std::vector<float>& qkv, const std::vector<float>& beta,
                const std::vector<float>& alpha);
void gated_norm(Pass&, const Layer& layer, std::vector<float>& y, const std::vector<float>& z);

// y[t] *= the share of the expert that all tokens have, of the token x[t]
void share_gate(Pass&, const Layer& layer, std::vector<float>& y, const std::vector<float>& x);
