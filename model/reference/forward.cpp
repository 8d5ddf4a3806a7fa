// A Qwen3 model from token ids to logits. model/cpu/forward.cpp and model/gpu/forward.cpp are this page with faster steps.
#include "model/reference/forward.h"
#include "base/ensure.h"
#include "base/mapped_file.h"
#include "model/reference/steps.h"
#include <algorithm>
#include <cmath>

namespace tq {
namespace ref {
namespace {

// From token ids to the hidden state h of every token.
void layers(Pass& pass, const Network& net, Activations& x) {
    embed(pass, x.h, net.token_embd, x.ids);
    for (const Layer& l : net.layers) {
        pass.begin(l);

        // attention
        rms_norm(pass, x.a, x.h, l.attn_norm);
        matmul(pass, {{x.q, l.attn_q}, {x.k, l.attn_k}, {x.v, l.attn_v}}, x.a);
        kv_append(pass, l, x.k, x.v);
        q_norm_rope(pass, l, x.q);
        attention(pass, l, x.attn, x.q);
        matmul_add(pass, x.h, l.attn_output, x.attn);

        // feed-forward
        rms_norm(pass, x.a, x.h, l.ffn_norm);
        gated_matmul(pass, x.ffn, l.ffn_gate_up, x.a);
        matmul_add(pass, x.h, l.ffn_down, x.ffn);
    }
}

// From hidden states to logits.
void head(Pass& pass, const Network& net, Activations& x) {
    rms_norm(pass, x.a, x.h, net.output_norm);
    matmul(pass, {{x.logits, net.output}}, x.a);
}

} // namespace
} // namespace ref

namespace {

class ReferenceForward final : public Forward {
  public:
    ReferenceForward(const Config& config, const Weights& weights, const ForwardOptions& options, host::OnResult on_result)
        : options_(options), on_result_(std::move(on_result)), pool_(options.threads),
          net_(config, std::make_shared<LoadedWeights>(load_weights(pool_, weights)), options.kv, options.context_size,
               options.context_size, options.context_size) {}

    std::span<const float> run(std::span<const uint32_t> ids, const Progress& progress) override {
        if (!run_rows(ids, uint32_t(ids.size()) - 1, progress)) return {};
        return x_.logits;
    }
    bool run_all(std::span<const uint32_t> ids, const EachLogits& each, const Progress& progress) override {
        if (!run_rows(ids, 0, progress)) return false;
        const size_t vocab = net_.config.vocab_size;
        for (uint32_t t = 0; t < ids.size(); t++) each(t, std::span(x_.logits).subspan(t * vocab, vocab));
        return true;
    }

    void truncate(uint32_t n) override {
        ENSURE(n <= position_, "{} of {}", n, position_);
        for (LayerCache& layer : net_.cache)
            if (layer.window) layer.window->positions.forget(position_, n);
        position_ = n;
    }
    void repeat_to(uint32_t) override { ENSURE(false, "not offered"); }
    uint32_t position() const override { return position_; }
    uint32_t context_size() const override { return options_.context_size; }
    const KvOptions& kv() const override { return options_.kv; }
    uint64_t kv_bytes_per_token() const override { return tq::kv_bytes_per_token(net_.config, options_.kv); }

  private:
    using LayerCache = host::LayerCache;

    // Leaves the logits of row `first_logits` and all later rows in x_.
    bool run_rows(std::span<const uint32_t> ids, uint32_t first_logits, const Progress& progress) {
        const auto tokens = uint32_t(ids.size());
        ENSURE(tokens > 0 && tokens <= options_.context_size - position_, "{} tokens at {}", tokens, position_);
        x_.ids = ids;
        x_.resize(net_.config, tokens);
        x_.logits.resize(size_t(tokens - first_logits) * net_.config.vocab_size);
        host::Pass pass(pool_, net_, position_, tokens, on_result_);
        ref::layers(pass, net_, x_);
        pass.begin_head(first_logits, tokens - first_logits);
        ref::head(pass, net_, x_);
        x_.ids = {};
        check_mapped_files();
        position_ += tokens;
        if (!std::ranges::all_of(x_.logits, [](float v) { return std::isfinite(v); })) {
            const auto where = host::find_nonfinite(net_.cache, position_);
            truncate(position_ - tokens);
            fail_nonfinite(where);
        }
        return !progress || progress(tokens, tokens);
    }

    const ForwardOptions options_;
    const host::OnResult on_result_;
    ThreadPool pool_;
    host::Network net_;
    host::Activations x_;
    uint32_t position_ = 0;
};

} // namespace

std::unique_ptr<Forward> make_reference_forward(const Config& config, const Weights& weights, const ForwardOptions& options,
                                                host::OnResult on_result) {
    return std::make_unique<ReferenceForward>(config, weights, options, std::move(on_result));
}

} // namespace tq
