// The page of model/reference/forward.cpp, recorded for a device. model/gpu/recordings.cpp records and runs it.
#include "model/gpu/forward.h"
#include "model/gpu/steps.h"

namespace tq::gpu {

void attention_half(ForwardPass& pass, const Layer& l, const Activations& x) {
    rms_norm(pass, x.a, x.h, l.attn_norm);
    matmul(pass, {{x.q, l.attn_q}, {x.k, l.attn_k}, {x.v, l.attn_v}}, x.a);
    kv_append(pass, l, x.k, x.v);
    q_norm_rope(pass, l, x.q, x.page_scores);
    attention(pass, l, x.attn, x.q, x.page_scores);
    matmul_add(pass, x.h, l.attn_output, x.attn);
}

void feed_forward_half(ForwardPass& pass, const Layer& l, const Activations& x) {
    rms_norm(pass, x.a, x.h, l.ffn_norm);
    if (l.router) {
        route(pass, x.routes, *l.router, x.a);
        gated_matmul(pass, x.ffn, l.ffn_gate_up, x.a, x.routes);
        matmul_add(pass, x.h, l.ffn_down, x.ffn, x.routes);
    } else {
        gated_matmul(pass, x.ffn, l.ffn_gate_up, x.a);
        matmul_add(pass, x.h, l.ffn_down, x.ffn);
    }
}

void layers(ForwardPass& pass, const Network& net, const Activations& x) {
    embed(pass, x.h, net.token_embd, x.ids);
    for (const Layer& l : net.layers) {
        pass.begin(l);
        attention_half(pass, l, x);
        feed_forward_half(pass, l, x);
    }
}

void head(ForwardPass& pass, const Network& net, const Activations& x) {
    rms_norm(pass, x.a, x.h, net.output_norm);
    matmul(pass, {{x.logits, net.output}}, x.a);
}

void last_norm(ForwardPass& pass, const Network& net, const Activations& x) { rms_norm(pass, x.a, x.h, net.output_norm); }

} // namespace tq::gpu
