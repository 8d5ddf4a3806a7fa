#include "tests/support/stressed_forward.h"
#include "base/ensure.h"
#include "model/cpu/steps.h"
#include "model/host/run.h"
#include "model/rope.h"
#include <algorithm>
#include <bit>

namespace tq::test {
namespace {

using quality::Stress, quality::StressedVectors;

constexpr uint32_t block = 128;

// What each layer's keys and values go through.
class Door {
  public:
    Door(const Model& model, const KvOptions& kv, const Stress& stress, uint32_t positions)
        : stressed_(stress, model.config, model.weights, positions) {
        const Config& c = model.config;
        for (uint32_t i = 0; i < c.num_hidden_layers; i++) {
            codecs_.push_back({kv.codec(i, c.num_hidden_layers, KvSide::key, c.head_dim),
                               kv.codec(i, c.num_hidden_layers, KvSide::value, c.head_dim)});
            conditions_.push_back(conditions(c, model.weights.layers[i], kv.conditioning_of(i, c.num_hidden_layers), i));
        }
    }

    // Replaces the vectors of a pass' rows, which are consecutive positions, in a cache of fp32.
    void pass_through(const host::Pass& pass) const {
        const host::LayerCache& cache = pass.layer()->cache;
        const uint32_t layer = pass.layer()->number, first = pass.rows()[0].position;
        for (const KvSide side : {KvSide::key, KvSide::value}) {
            const uint32_t heads = cache.k.heads, d = cache.k.head_dim();
            std::vector<float> x(pass.rows().size() * heads * d);
            const auto stored = [&](size_t i) {
                return cache.side(side).codes(cache.place(pass.rows()[i / heads]), uint32_t(i % heads));
            };
            for (size_t i = 0; i * d < x.size(); i++)
                std::ranges::transform(stored(i), &x[i * d], [](uint32_t bits) { return std::bit_cast<float>(bits); });
            stressed_.apply(x, side, layer, first);
            pass.pool.each(uint32_t(x.size() / d), 1, [&](uint32_t begin, uint32_t end) {
                for (uint32_t i = begin; i < end; i++) code(std::span(x).subspan(size_t(i) * d, d), layer, side, i % heads);
            });
            stressed_.undo(x, side, layer, first);
            for (size_t i = 0; i * d < x.size(); i++)
                std::ranges::transform(std::span(x).subspan(i * d, d), stored(i).begin(),
                                       [](float v) { return std::bit_cast<uint32_t>(v); });
        }
    }

  private:
    // The factors of keys by the norms, and the means by the bias of the stress; empty where keys are not conditioned.
    HeadConditions conditions(const Config& c, const LayerWeights& w, const KeyConditioning& by, uint32_t layer) const {
        if (by.kind == KeyConditioning::Kind::none) return {};
        std::vector<float> q = head_norm_weights(w.attn_q_norm, c.head_dim), k = head_norm_weights(w.attn_k_norm, c.head_dim);
        const std::vector<float> before = k;
        balance_norms(q, k);
        HeadConditions out;
        for (uint32_t head = 0; head < c.num_key_value_heads; head++)
            for (uint32_t i = 0; i < c.head_dim; i++) out.factors.push_back(before[i] != 0 ? k[i] / before[i] : 1);
        out.means = rope_mean(c, stressed_.key_bias(layer), mean_positions);
        return out;
    }

    void code(std::span<float> x, uint32_t layer, KvSide side, uint32_t head) const {
        const KvCodec& codec = side == KvSide::key ? codecs_[layer].k : codecs_[layer].v;
        const HeadConditions& conditioned = conditions_[layer];
        const bool is_conditioned = side == KvSide::key && !conditioned.empty();
        if (is_conditioned) condition(x, conditioned, head);
        std::vector<uint32_t> codes(codec.words());
        std::vector<uint16_t> scales(codec.scales());
        encode(codec, codes, scales, x);
        decode(codec, x, codes, scales);
        if (is_conditioned)
            for (size_t c = 0; c < x.size(); c++)
                x[c] = x[c] / conditioned.factors[head * x.size() + c] + conditioned.means[head * x.size() + c];
    }

    const StressedVectors stressed_;
    std::vector<host::LayerCodecs> codecs_;
    std::vector<HeadConditions> conditions_;
};

ForwardOptions exact_cache(uint32_t context_size) {
    ForwardOptions options{.kv = {KvType::f32, KvType::f32}, .context_size = context_size, .batch_size = block};
    options.kv.conditioning = parse_key_conditioning("none");
    return options;
}

class StressedForward final : public Forward {
  public:
    StressedForward(const Model& model, const KvOptions& kv, const Stress& stress, uint32_t context_size)
        : kv_(kv), door_(model, kv, stress, context_size), options_(exact_cache(context_size)),
          cache_(host::make_cache(model.config, options_, block)),
          net_(model.config, std::make_shared<LoadedWeights>(load_weights(pool_, model.weights)), options_.kv, cache_.vectors(),
               context_size) {}

    bool run(std::span<const Span> spans, const SpanLogits& each, const Progress& progress) override {
        ENSURE(spans.size() == 1 && spans[0].logits != Span::Logits::hidden, "only logits of one sequence");
        host::Run run(cache_, spans);
        const Span& span = spans[0];
        for (uint32_t first = 0, count; first < span.ids.size(); first += count) {
            count = std::min(block, uint32_t(span.ids.size()) - first);
            run_block(span.slot, span.ids.subspan(first, count));
            for (uint32_t i = 0; i < count; i++)
                if (span.logits == Span::Logits::all || first + i + 1 == span.ids.size())
                    each(0, first + i, std::span(x_.logits).subspan(i * net_.config.vocab_size, net_.config.vocab_size));
            if (!run.progressed(count, progress)) return false;
        }
        return true;
    }

    uint32_t max_separate_rows() const override { return 1; }
    Cache& cache() override { return cache_; }
    const KvOptions& kv() const override { return kv_; }
    uint64_t kv_bytes_per_token() const override { return tq::kv_bytes_per_token(net_.config, kv_); }

  private:
    void run_block(uint32_t slot, std::span<const uint32_t> ids) {
        const auto rows = host::make_rows(slot, cache_.position(slot), uint32_t(ids.size()));
        const host::OnResult on_result = [this](const host::Pass& pass, std::string_view step, std::span<float>) {
            if (step == "kv_append") door_.pass_through(pass);
        };
        x_.ids = ids;
        x_.resize(net_.config, rows.size());
        host::Pass pass(pool_, net_, rows, on_result, false);
        cpu::layers(pass, net_, x_);
        x_.resize_head(net_.config, rows.size());
        host::Pass last(pool_, net_, rows, on_result, false);
        cpu::head(last, net_, x_);
        cache_.advance(slot, uint32_t(rows.size()));
    }

    const KvOptions kv_;
    const Door door_;
    const ForwardOptions options_;
    ThreadPool pool_;
    host::KvCache cache_;
    const host::Network net_;
    host::Activations x_;
};

} // namespace

std::unique_ptr<Forward> make_stressed_forward(const Model& model, const KvOptions& kv, const Stress& stress,
                                               uint32_t context_size) {
    ENSURE(kv.window == 0, "a window");
    return std::make_unique<StressedForward>(model, kv, stress, context_size);
}

} // namespace tq::test
