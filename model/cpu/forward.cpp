// The page of model/reference/forward.cpp on the fast kernels of the CPU path. model/cpu/stage.cpp runs it.
// x.h is the hidden state of each token, to which every half adds its result; x.a is its norm, the input of the products that
// begin a half. mtp_keys() leaves x.h as the layers made it, because the model's own head reads it afterwards; draft() runs the
// layer of the head for multi-token prediction on x.h, in a pass of its own.
#include "model/cpu/forward.h"
#include "model/cpu/steps.h"

namespace tq::cpu {

namespace {

void attention_half(Pass& pass, const Layer& l, Activations& x) {
    const bool gated = pass.config.gated_attention;
    rms_norm(pass, x.a, x.h, l.attn_norm);
    matmul(pass, {{gated ? x.q_gate : x.q, l.attn_q}, {x.k, l.attn_k}, {x.v, l.attn_v}}, x.a);
    if (gated) split_gates(pass, x.q, x.gate, x.q_gate);
    kv_append(pass, l, x.k, x.v);
    q_norm_rope(pass, l, x.q, x.page_scores);
    attention(pass, l, x.attn, x.q, x.page_scores);
    if (gated) apply_gates(pass, x.attn, x.gate);
    matmul_add(pass, x.h, l.attn_output, x.attn);
}

void recurrent_half(Pass& pass, const Layer& l, Activations& x) {
    const Recurrence& r = *l.recurrence;
    rms_norm(pass, x.a, x.h, l.attn_norm);
    matmul(pass, {{x.qkv, r.attn_qkv}, {x.z, r.attn_gate}, {x.beta, r.ssm_beta}, {x.alpha, r.ssm_alpha}}, x.a);
    delta_inputs(pass, l, x.qkv, x.beta, x.alpha);
    delta_rule(pass, l, x.delta, x.qkv, x.beta, x.alpha);
    gated_norm(pass, l, x.delta, x.z);
    matmul_add(pass, x.h, r.ssm_out, x.delta);
}

void shared_expert(Pass& pass, const Layer& l, Activations& x) {
    gated_matmul(pass, x.shared, l.shared->gate_up, x.a);
    share_gate(pass, l, x.shared, x.a);
    matmul_add(pass, x.h, l.shared->down, x.shared);
}

} // namespace

void first_half(Pass& pass, const Layer& l, Activations& x) {
    l.recurrence ? recurrent_half(pass, l, x) : attention_half(pass, l, x);
}

void feed_forward_half(Pass& pass, const Layer& l, Activations& x) {
    rms_norm(pass, x.a, x.h, l.ffn_norm);
    if (l.router) {
        route(pass, x.routes, *l.router, x.a);
        gated_matmul(pass, x.ffn, l.ffn_gate_up, x.a, x.routes);
        matmul_add(pass, x.h, l.ffn_down, x.ffn, x.routes);
        if (l.shared) shared_expert(pass, l, x);
    } else {
        gated_matmul(pass, x.ffn, l.ffn_gate_up, x.a);
        matmul_add(pass, x.h, l.ffn_down, x.ffn);
    }
}

void last_norm(Pass& pass, const Network& net, Activations& x) { rms_norm(pass, x.a, x.h, net.output_norm); }

namespace {

void mtp_keys(Pass& pass, const Network& net, Activations& x) {
    const Mtp& m = *net.mtp;
    last_norm(pass, net, x);
    pass.begin(m.layer);
    embed(pass, x.e, m.token_embd, x.ids);
    mtp_inputs(pass, m, x.eh, x.e, x.a);
    matmul(pass, {{x.e, m.eh_proj}}, x.eh);
    keep_states(pass, m, x.a);
    rms_norm(pass, x.a, x.e, m.layer.attn_norm);
    matmul(pass, {{x.k, m.layer.attn_k}, {x.v, m.layer.attn_v}}, x.a);
    kv_append(pass, m.layer, x.k, x.v);
}

} // namespace

void layers(Pass& pass, const Network& net, Activations& x) {
    embed(pass, x.h, net.token_embd, x.ids);
    for (const Layer& l : net.layers) {
        pass.begin(l);
        first_half(pass, l, x);
        feed_forward_half(pass, l, x);
    }
    if (net.mtp) mtp_keys(pass, net, x);
}

void head(Pass& pass, const Network& net, Activations& x) {
    rms_norm(pass, x.a, x.h, net.output_norm);
    matmul(pass, {{x.logits, net.output}}, x.a);
}

void draft(Pass& pass, const Network& net, Activations& x) {
    const Mtp& m = *net.mtp;
    pass.begin(m.layer);
    embed(pass, x.e, m.token_embd, x.ids);
    mtp_inputs(pass, m, x.eh, x.e, x.a);
    matmul(pass, {{x.h, m.eh_proj}}, x.eh);
    attention_half(pass, m.layer, x);
    feed_forward_half(pass, m.layer, x);
    rms_norm(pass, x.a, x.h, m.norm);
    keep_states(pass, m, x.a);
    matmul(pass, {{x.logits, m.output}}, x.a);
}

} // namespace tq::cpu
