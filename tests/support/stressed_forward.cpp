#include "tests/support/stressed_forward.h"
#include "base/ensure.h"
#include "base/error.h"
#include "base/half.h"
#include "model/cpu/steps.h"
#include "model/kv/window.h"
#include "model/rope.h"
#include "model/span_run.h"
#include <algorithm>
#include <array>
#include <bit>
#include <cmath>

namespace tq::test {
namespace {

using quality::Stress, quality::StressedVectors;

constexpr uint32_t block = 128;

// x[head_dim] = what a window keeps of it as fp16.
void through_window(std::span<float> x, const KvCodec& codec) {
    std::vector<uint32_t> words(x.size() / 2);
    encode_window(codec, words, x);
    for (size_t i = 0; i < x.size(); i++) x[i] = half_to_float(uint16_t(words[i / 2] >> (16 * (i % 2)))) / window_unit;
    if (is_turboquant(codec.type)) rotate_back(x, codec.rotation);
}

void through_codes(std::span<float> x, const KvCodec& codec) {
    std::vector<uint32_t> codes(codec.words());
    std::vector<uint16_t> scales(codec.scales());
    encode(codec, codes, scales, x);
    decode(codec, x, codes, scales);
}

// The codecs that the keys and values of a layer go through, after the stress.
struct LayerDoor {
    std::array<KvCodec, 2> codecs;            // by KvSide
    std::array<HeadConditions, 2> conditions; // empty: not conditioned
    host::LayerCache cache; // what is attended to, in fp32: pages of what codes hold, and windows of what fp16 holds

    // x[head_dim] of kv head `head` = what codes, or a window, hold of it. turns: the rotary table's row of its page.
    template <class Through>
    void pass(std::span<float> x, KvSide side, uint32_t head, std::span<const float> turns, Through through) const {
        const HeadConditions& by = conditions[size_t(side)];
        std::vector<float> less(x.size()); // the mean, times -1 and the factors
        if (!by.empty()) condition_key(less, by, head, turns);
        if (!by.empty()) condition_key(x, by, head, turns);
        through(x, codecs[size_t(side)]);
        for (size_t c = 0, at = head * x.size(); !by.empty() && c < x.size(); c++, at++) x[c] = (x[c] - less[c]) / by.factors[at];
    }
};

// The factors and means of a layer's keys: those of its weights, and the mean of the stress' bias.
HeadConditions of_keys(const Config& c, const host::Layer& l, const KeyConditioning& by, const AttentionSquares& squares,
                       const StressedVectors& stressed) {
    if (by.kind == KeyConditioning::Kind::none) return {};
    const HeadNorms norms =
        head_norms(by, l.number, l.head_norms.q, l.head_norms.k, key_scaling(c, squares, l.attn_k.bias), c.rotary_dim);
    const std::vector<float>& before = l.head_norms.k;
    HeadConditions out = norms.k_conditions;
    out.factors.resize(size_t(c.num_key_value_heads) * c.head_dim, 1.0f);
    out.means.resize(out.factors.size());
    const std::vector<float> mean = rope_mean(c, stressed.key_bias(l.number), mean_positions);
    for (size_t i = 0; i < out.factors.size(); i++) {
        const size_t channel = i % c.head_dim;
        if (before[channel] != 0) out.factors[i] *= norms.k[channel] / before[channel];
        out.means[i] += mean[i];
    }
    return out;
}

// The scales of a layer's values, of weights that hold the stress' factors of channels.
HeadConditions of_values(const Config& c, uint32_t layer, AttentionSquares squares, const StressedVectors& stressed) {
    const std::vector<double> factors = stressed.channel_factors(KvSide::value, layer);
    const size_t d = c.head_dim, group = c.num_attention_heads / c.num_key_value_heads;
    for (size_t i = 0; i < squares.values.size(); i++) squares.values[i] *= factors[i] * factors[i];
    for (size_t i = 0; i < squares.columns.size(); i++) {
        const double by = factors[i / d / group * d + i % d];
        squares.columns[i] /= by * by;
    }
    HeadConditions out;
    for (const float scale : value_scales(c, squares)) out.factors.push_back(1 / scale);
    return out;
}

// The way of each layer's keys and values, and what is then attended to.
class Door {
  public:
    Door(const Model& model, const host::Network& net, const KvOptions& kv, const Stress& stress, const Cache& sequences)
        : stressed_(stress, model.config, model.weights, sequences.shape().context_size) {
        const Config& c = model.config;
        const uint32_t count = c.num_hidden_layers, heads = c.num_key_value_heads;
        const KvCodec exact = KvOptions{KvType::f32, KvType::f32}.codec(0, count, KvSide::key, c.head_dim);
        const auto room = [&](uint32_t blocks, uint32_t tokens) { return host::CacheSide(exact, heads, blocks, tokens); };
        const Cache::Shape& shape = sequences.shape();
        for (const host::Layer& l : net.layers) {
            const AttentionSquares& squares = net.weights->attention_squares[l.number];
            host::LayerCache cache{sequences, room(shape.pages, page_tokens), room(shape.pages, page_tokens), {}};
            const uint32_t ring = kept_window_tokens(kv.window) + block;
            if (kv.window != 0 && kv.at(l.number, count).coded())
                cache.window = {room(shape.slots, ring), room(shape.slots, ring)};
            layers_.push_back(
                {{kv.codec(l.number, count, KvSide::key, c.head_dim), kv.codec(l.number, count, KvSide::value, c.head_dim)},
                 {of_keys(c, l, kv.conditioning_of(l.number, count), squares, stressed_),
                  kv.scales_values(l.number, count) ? of_values(c, l.number, squares, stressed_) : HeadConditions()},
                 std::move(cache)});
        }
    }

    const host::LayerCache& cache(uint32_t layer) const { return layers_[layer].cache; }

    // Stores exact keys, after RoPE, or values of a pass' rows, which are consecutive. x: [rows][kv_heads][head_dim]
    void store(const host::Pass& pass, KvSide side, std::vector<float> x) const {
        const LayerDoor& door = layers_[pass.layer()->number];
        stressed_.apply(x, side, pass.layer()->number, pass.rows()[0].position);
        if (door.cache.window)
            put(pass, door.cache.window->side(side), side, x, window_unit, through_window,
                [&](host::Row row) { return door.cache.window_place(row); });
        const auto in_pages = [&](host::Row row) { return door.cache.place(row); };
        const host::CacheSide& pages = door.cache.side(side);
        put(pass, pages, side, x, 1, through_codes, in_pages);
        const uint32_t first = pass.rows()[0].position; // the first tokens are read in fp16
        if (first >= FIRST_TOKENS || !KvTypes{door.codecs[0].type, door.codecs[1].type}.coded()) return;
        x.resize(std::min(x.size(), size_t(FIRST_TOKENS - first) * pages.heads * pages.head_dim()));
        put(pass, pages, side, std::move(x), 1, through_window, in_pages);
    }

  private:
    // Stores what codes or a window hold of x, which is stressed, changed back and times `unit`, where `place` says.
    template <class Through, class PlaceOf> void put(const host::Pass& pass, const host::CacheSide& to, KvSide side,
                                                     std::vector<float> x, float unit, Through through, PlaceOf place) const {
        const LayerDoor& door = layers_[pass.layer()->number];
        const uint32_t heads = to.heads, d = to.head_dim();
        pass.pool.each(uint32_t(x.size() / d), 1, [&](uint32_t begin, uint32_t end) {
            for (uint32_t i = begin; i < end; i++)
                door.pass(std::span(x).subspan(size_t(i) * d, d), side, i % heads,
                          pass.rope.page_turns(pass.rows()[i / heads], d), through);
        });
        stressed_.undo(x, side, pass.layer()->number, pass.rows()[0].position);
        for (size_t i = 0; i * d < x.size(); i++)
            std::ranges::transform(std::span(x).subspan(i * d, d),
                                   to.codes(place(pass.rows()[i / heads]), uint32_t(i % heads)).begin(),
                                   [&](float v) { return std::bit_cast<uint32_t>(v * unit); });
    }

    const StressedVectors stressed_;
    std::vector<LayerDoor> layers_;
};

ForwardOptions exact_cache(uint32_t context_size) {
    ForwardOptions options{.kv = {KvType::f32, KvType::f32}, .context_size = context_size, .batch_size = block};
    options.kv.conditioning = parse_key_conditioning("none");
    return options;
}

// The books of a cache with the window of `kv`; its own vectors are not used.
Cache::Shape books(const Config& c, const KvOptions& kv, uint32_t context_size) {
    check_kv(kv, c.num_hidden_layers);
    ForwardOptions options = exact_cache(context_size);
    options.kv = kv;
    return cache_shape(options, c);
}

class StressedForward final : public Forward {
  public:
    StressedForward(const Model& model, const KvOptions& kv, const Stress& stress, uint32_t context_size)
        : options_(exact_cache(context_size)), cache_(books(model.config, kv, context_size), model.config.num_key_value_heads,
                                                      host::layer_codecs(model.config, options_.kv), block),
          net_(model.config, std::make_shared<LoadedWeights>(load_weights(pool_, model.weights)), options_.kv, cache_.vectors(),
               context_size),
          door_(model, net_, kv, stress, cache_),
          facts_{.kv = kv, .kv_bytes_per_token = tq::kv_bytes_per_token(model.config, kv), .max_separate_rows = 1} {}

    bool run(std::span<const Span> spans, const SpanLogits& each, const Progress& progress) override {
        ENSURE(spans.size() == 1 && spans[0].logits != Span::Logits::hidden, "only logits of one sequence");
        begin_run(cache_, spans);
        const Span& span = spans[0];
        for (uint32_t first = 0, count; first < span.ids.size(); first += count) {
            count = std::min(block, uint32_t(span.ids.size()) - first);
            run_block(span.slot, span.ids.subspan(first, count));
            if (!std::ranges::all_of(x_.logits, [](float v) { return std::isfinite(v); }))
                fail("{} cannot hold keys or values of this stress: they are beyond the range of fp16", describe(facts_.kv));
            for (uint32_t i = 0; i < count; i++)
                if (span.logits == Span::Logits::all || first + i + 1 == span.ids.size())
                    each(0, first + i, std::span(x_.logits).subspan(i * net_.config.vocab_size, net_.config.vocab_size));
            if (progress && !progress(first + count, uint32_t(span.ids.size()))) return false;
        }
        return true;
    }

    Cache& cache() override { return cache_; }
    const ForwardFacts& facts() const override { return facts_; }

  private:
    // cpu::attention_half, with the door between keys and values and attention.
    void attention_half(host::Pass& pass, const host::Layer& l) {
        const Config& c = net_.config;
        cpu::rms_norm(pass, x_.a, x_.h, l.attn_norm);
        cpu::matmul(pass, {{x_.q, l.attn_q}, {x_.k, l.attn_k}, {x_.v, l.attn_v}}, x_.a);
        cpu::q_norm_rope(pass, l, x_.q, x_.page_scores);
        cpu::q_norm_rope(pool_, x_.k, l.head_norms.k, pass.rope, c.num_key_value_heads, c.head_norm_eps(), 1, nullptr);
        door_.store(pass, KvSide::key, x_.k);
        door_.store(pass, KvSide::value, x_.v);
        cpu::attention(pool_, x_.attn, x_.q, x_.page_scores, door_.cache(l.number), c.num_attention_heads, pass.rows(),
                       cpu::AttentionKernel::blocks);
        cpu::matmul_add(pass, x_.h, l.attn_output, x_.attn);
    }

    void run_block(uint32_t slot, std::span<const uint32_t> ids) {
        const auto rows = host::make_rows(slot, cache_.position(slot), uint32_t(ids.size()));
        x_.ids = ids;
        x_.resize(net_.config, rows.size());
        host::Pass pass(pool_, net_, rows, no_result_, false);
        cpu::embed(pass, x_.h, net_.token_embd, x_.ids);
        for (const host::Layer& l : net_.layers) {
            pass.begin(l);
            attention_half(pass, l);
            cpu::feed_forward_half(pass, l, x_);
        }
        x_.resize_head(net_.config, rows.size());
        host::Pass last(pool_, net_, rows, no_result_, false);
        cpu::head(last, net_, x_);
        cache_.advance(slot, uint32_t(rows.size()));
    }

    const ForwardOptions options_;
    const host::OnResult no_result_;
    ThreadPool pool_;
    host::HostCache cache_;
    const host::Network net_;
    const Door door_;
    host::Activations x_;
    const ForwardFacts facts_;
};

} // namespace

std::unique_ptr<Forward> make_stressed_forward(const Model& model, const KvOptions& kv, const Stress& stress,
                                               uint32_t context_size) {
    return std::make_unique<StressedForward>(model, kv, stress, context_size);
}

} // namespace tq::test
