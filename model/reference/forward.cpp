// A Qwen model from token ids to logits. model/cpu/forward.cpp and model/gpu/forward.cpp are this page with faster steps.
#include "model/reference/forward.h"
#include "base/mapped_file.h"
#include "model/draft_run.h"
#include "model/reference/steps.h"
#include "model/span_run.h"

namespace tq {
namespace ref {
namespace {

// The attention of a layer, added to the hidden state h of every token.
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

// The first half of a recurrent layer, instead of attention.
void recurrent_half(Pass& pass, const Layer& l, Activations& x) {
    const Recurrence& r = *l.recurrence;
    rms_norm(pass, x.a, x.h, l.attn_norm);
    matmul(pass, {{x.qkv, r.attn_qkv}, {x.z, r.attn_gate}, {x.beta, r.ssm_beta}, {x.alpha, r.ssm_alpha}}, x.a);
    delta_inputs(pass, l, x.qkv, x.beta, x.alpha);
    delta_rule(pass, l, x.delta, x.qkv, x.beta, x.alpha);
    gated_norm(pass, l, x.delta, x.z);
    matmul_add(pass, x.h, r.ssm_out, x.delta);
}

void first_half(Pass& pass, const Layer& l, Activations& x) {
    l.recurrence ? recurrent_half(pass, l, x) : attention_half(pass, l, x);
}

// The expert of a mixture that all tokens have.
void shared_expert(Pass& pass, const Layer& l, Activations& x) {
    gated_matmul(pass, x.shared, l.shared->gate_up, x.a);
    share_gate(pass, l, x.shared, x.a);
    matmul_add(pass, x.h, l.shared->down, x.shared);
}

// Its feed-forward network, or a mixture of experts.
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

// Makes, from hidden states, the states from which embeddings are made, in x.a.
void last_norm(Pass& pass, const Network& net, Activations& x) { rms_norm(pass, x.a, x.h, net.output_norm); }

// Stores what the head for multi-token prediction keeps of every token: the keys and values of its layer, and the last states.
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

// From token ids to the hidden state h of every token.
void layers(Pass& pass, const Network& net, Activations& x) {
    embed(pass, x.h, net.token_embd, x.ids);
    for (const Layer& l : net.layers) {
        pass.begin(l);
        first_half(pass, l, x);
        feed_forward_half(pass, l, x);
    }
    if (net.mtp) mtp_keys(pass, net, x);
}

// From hidden states to logits.
void head(Pass& pass, const Network& net, Activations& x) {
    rms_norm(pass, x.a, x.h, net.output_norm);
    matmul(pass, {{x.logits, net.output}}, x.a);
}

// From the ids that follow the tokens of slots to the logits that follow them, by that head.
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

} // namespace
} // namespace ref

namespace {

class ReferenceForward final : public Forward {
  public:
    ReferenceForward(const Config& config, const Weights& weights, const ForwardOptions& options, host::OnResult on_result)
        : on_result_(std::move(on_result)), pool_(options.threads),
          cache_(host::make_cache(config, options, options.context_size, ref::settle)),
          net_(config, std::make_shared<LoadedWeights>(load_weights(pool_, weights)), options.kv, cache_.vectors(),
               options.context_size),
          facts_{.kv = options.kv,
                 .kv_bytes_per_token = tq::kv_bytes_per_token(config, options.kv),
                 .max_separate_rows = options.context_size,
                 .drafts = config.mtp} {}

    using Forward::run;
    bool run(std::span<const Span> spans, const SpanLogits& each, const Progress& progress) override {
        const std::vector<Cache::Need> starts = begin_run(cache_, spans);
        uint32_t done = 0, total = 0;
        for (const Span& span : spans) total += uint32_t(span.ids.size());
        results_.resize(spans.size());
        for (size_t i = 0; i < spans.size(); i++) {
            const uint32_t requested = requested_rows(spans[i]);
            run_span(spans[i], requested);
            deliver(spans[i], i, requested, each, starts);
            done += uint32_t(spans[i].ids.size());
            if (progress && !progress(done, total)) return false;
        }
        return true;
    }

    std::vector<std::vector<uint32_t>> draft(std::span<const DraftStart> starts, uint32_t n, DraftIds ids,
                                             const DraftLogits& each) override {
        return run_drafts(
            cache_, starts, n, ids, max_separate_rows(), [&](const PassRows& rows, DraftIds) { return run_draft(rows); }, each);
    }

    Cache& cache() override { return cache_; }
    const ForwardFacts& facts() const override { return facts_; }

  private:
    static uint32_t requested_rows(const Span& span) {
        return span.logits == Span::Logits::none ? 0 : span.logits == Span::Logits::all ? uint32_t(span.ids.size()) : 1;
    }

    std::span<const float> run_draft(const PassRows& rows) {
        const std::vector<host::Row> all = host::rows_of(rows);
        x_.ids = rows.ids;
        x_.resize(net_.config, all.size());
        x_.resize_head(net_.config, all.size());
        host::Pass pass(pool_, net_, all, on_result_);
        ref::draft(pass, net_, x_);
        check_mapped_files();
        x_.ids = {};
        return x_.logits;
    }

    // Leaves the logits of the last `wanted` ids in x_, or the last one's state.
    void run_span(const Span& span, uint32_t requested) {
        const uint32_t start = cache().position(span.slot), settled = settled_after(span, start);
        const auto rows = host::make_rows(span.slot, start, uint32_t(span.ids.size()), {cache().settled(span.slot), settled});
        x_.ids = span.ids;
        x_.resize(net_.config, rows.size());
        host::Pass pass(pool_, net_, rows, on_result_);
        ref::layers(pass, net_, x_);
        x_.ids = {};
        x_.h.erase(x_.h.begin(), x_.h.end() - std::ptrdiff_t(requested * net_.config.hidden_size));
        x_.resize_head(net_.config, requested);
        host::Pass last(pool_, net_, std::span(rows).last(requested), on_result_);
        if (span.logits == Span::Logits::hidden)
            ref::last_norm(last, net_, x_);
        else if (requested > 0)
            ref::head(last, net_, x_);
        check_mapped_files();
        cache().advance(span.slot, uint32_t(rows.size()), settled);
    }

    void deliver(const Span& span, size_t number, uint32_t requested, const SpanLogits& each,
                 std::span<const Cache::Need> starts) {
        const bool hidden = span.logits == Span::Logits::hidden;
        const uint32_t cols = hidden ? net_.config.hidden_size : net_.config.vocab_size;
        std::vector<float>& result = hidden ? x_.a : x_.logits;
        try {
            require_finite(result);
        } catch (const NonFinite&) {
            report_nonfinite(cache_, starts);
        }
        std::swap(results_[number], result); // kept until the next run
        const auto count = uint32_t(span.ids.size());
        for (uint32_t t = count - requested, at = 0; t < count; t++, at += cols)
            each(number, t, std::span(results_[number]).subspan(at, cols));
    }

    const host::OnResult on_result_;
    ThreadPool pool_;
    host::HostCache cache_;
    host::Network net_;
    const ForwardFacts facts_;
    host::Activations x_;
    std::vector<std::vector<float>> results_; // of each span
};

} // namespace

std::unique_ptr<Forward> make_reference_forward(const Config& config, const Weights& weights, const ForwardOptions& options,
                                                host::OnResult on_result) {
    return std::make_unique<ReferenceForward>(config, weights, options, std::move(on_result));
}

} // namespace tq
