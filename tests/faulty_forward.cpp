#include "tests/faulty_forward.h"
#include "base/ensure.h"
#include "base/half.h"
#include "model/cpu/kernels.h"
#include "model/rope.h"
#include <algorithm>
#include <cmath>

namespace tq::test {
namespace {

struct LayerNorms {
    std::vector<float> attn, ffn;
    HeadNorms heads;
};

class FaultyForward final : public Forward {
  public:
    FaultyForward(const Model& model, const KvOptions& kv, uint32_t context_size, Fault fault)
        : model_(model), kv_(kv), context_size_(context_size), fault_(fault),
          rope_table_(rope_table(model.config, context_size)) {
        const Config& c = model.config;
        for (uint32_t i = 0; i < c.num_hidden_layers; i++) {
            const LayerWeights& w = model.weights.layers[i];
            norms_.push_back(
                {to_floats(w.attn_norm), to_floats(w.ffn_norm),
                 head_norms(kv.conditioning_of(i, c.num_hidden_layers), i, to_floats(w.attn_q_norm), to_floats(w.attn_k_norm))});
            cache_.push_back({side(KvSide::key, i), side(KvSide::value, i)});
        }
    }

    std::span<const float> run(std::span<const uint32_t> ids, const Progress& progress) override {
        run_all(
            ids, [](uint32_t, std::span<const float>) {}, progress);
        return std::span(logits_).last(model_.config.vocab_size);
    }
    bool run_all(std::span<const uint32_t> ids, const EachLogits& each, const Progress& progress) override;

    void truncate(uint32_t n) override { position_ = n; }
    void repeat_to(uint32_t) override { ENSURE(false, "not offered"); }
    uint32_t position() const override { return position_; }
    uint32_t context_size() const override { return context_size_; }
    const KvOptions& kv() const override { return kv_; }
    uint64_t kv_bytes_per_token() const override { return tq::kv_bytes_per_token(model_.config, kv_); }

  private:
    cpu::CacheSide side(KvSide which, uint32_t layer) const {
        return {kv_.codec(layer, model_.config.num_hidden_layers, which, model_.config.head_dim),
                model_.config.num_key_value_heads, context_size_};
    }
    bool swaps(KvType type) const {
        return fault_ == Fault::swapped_everywhere || (fault_ == Fault::swapped_unless_f32 && type != KvType::f32) ||
               (fault_ == Fault::swapped_if_coded && is_coded(type));
    }
    std::optional<Rotation> query_rotation(uint32_t layer) const;
    void swap(std::vector<float>& x, KvType type) const;
    void spoil(const cpu::CacheSide& side, uint32_t tokens) const;
    void layer(uint32_t i, uint32_t tokens);

    const Model& model_;
    const KvOptions kv_;
    const uint32_t context_size_;
    const Fault fault_;
    ThreadPool pool_;
    std::vector<float> rope_table_;
    std::vector<LayerNorms> norms_;
    std::vector<cpu::LayerCache> cache_;
    uint32_t position_ = 0;
    std::vector<float> h_, a_, q_, k_, v_, attn_, gate_, up_, logits_;
};

std::optional<Rotation> FaultyForward::query_rotation(uint32_t layer) const {
    const KvCodec& codec = cache_[layer].k.codec;
    if (!is_rotated(codec.type)) return std::nullopt;
    const RotationKind kind = codec.rotation.kind;
    const bool wrong = fault_ == Fault::other_rotation || (fault_ == Fault::other_haar && kind == RotationKind::haar);
    return wrong ? make_rotation(kind, layer + 1, KvSide::key, codec.head_dim()) : codec.rotation;
}

// [tokens][heads][head_dim] as if it were [heads][tokens][head_dim].
void FaultyForward::swap(std::vector<float>& x, KvType type) const {
    if (!swaps(type)) return;
    const size_t heads = model_.config.num_key_value_heads, d = model_.config.head_dim, tokens = x.size() / heads / d;
    const std::vector<float> right = x;
    for (size_t t = 0; t < tokens; t++)
        for (size_t head = 0; head < heads; head++) std::copy_n(&right[(head * tokens + t) * d], d, &x[(t * heads + head) * d]);
}

// What was stored at position_ and after it, for `tokens` tokens.
void FaultyForward::spoil(const cpu::CacheSide& side, uint32_t tokens) const {
    const KvType type = side.codec.type;
    for (uint32_t head = 0; head < side.heads; head++)
        for (uint32_t t = 0; t < tokens && is_coded(type); t++) {
            const std::span<uint16_t> scales = side.scales(head, position_ + t);
            const float scale = half_to_float(scales[0]);
            const bool least_squares = side.codec.scale_rule == ScaleRule::least_squares;
            if (is_turboquant(type) && (fault_ == Fault::scale_twice || (fault_ == Fault::rule_twice && least_squares)))
                scales[0] = float_to_half(scale * scale);
            if (is_qjl(type) && fault_ == Fault::residual_fourfold) scales[1] = float_to_half(4 * half_to_float(scales[1]));
            if (family(type) == KV_AFFINE && fault_ == Fault::affine_zero) scales[1] = 0;
        }
}

// The steps of model/cpu/forward.cpp.
void FaultyForward::layer(uint32_t i, uint32_t tokens) {
    const Config& c = model_.config;
    const LayerWeights& w = model_.weights.layers[i];
    const LayerNorms& norm = norms_[i];
    const cpu::LayerCache& cache = cache_[i];
    const cpu::Rope rope{rope_table_, position_};
    const std::optional<Rotation> rotation = query_rotation(i);
    const float q_scale = 1 / std::sqrt(float(c.head_dim)) / (rotation ? rotation->gain() : 1);
    cpu::rms_norm(pool_, a_, h_, norm.attn, c.rms_norm_eps);
    cpu::matmul(pool_, {{q_, w.attn_q}, {k_, w.attn_k}, {v_, w.attn_v}}, a_);
    cpu::q_norm_rope(pool_, q_, norm.heads.q, rope, c.num_attention_heads, c.rms_norm_eps, q_scale,
                     rotation ? &*rotation : nullptr);
    swap(k_, cache.k.codec.type);
    swap(v_, cache.v.codec.type);
    cpu::kv_append(pool_, cache, k_, v_, norm.heads.k, rope, c.rms_norm_eps);
    spoil(cache.k, tokens);
    spoil(cache.v, tokens);
    cpu::attention(pool_, attn_, q_, cache, c.num_attention_heads, position_);
    cpu::matmul(pool_, {{h_, w.attn_output, true}}, attn_);
    cpu::rms_norm(pool_, a_, h_, norm.ffn, c.rms_norm_eps);
    cpu::gated_matmul(pool_, gate_, up_, w.ffn_gate, w.ffn_up, a_);
    cpu::matmul(pool_, {{h_, w.ffn_down, true}}, gate_);
}

bool FaultyForward::run_all(std::span<const uint32_t> ids, const EachLogits& each, const Progress& progress) {
    const Config& c = model_.config;
    const auto tokens = uint32_t(ids.size());
    const size_t q_cols = size_t(c.num_attention_heads) * c.head_dim, kv_cols = size_t(c.num_key_value_heads) * c.head_dim;
    ENSURE(tokens > 0 && tokens <= context_size_ - position_, "{} tokens at {}", tokens, position_);
    for (auto* x : {&h_, &a_}) x->resize(size_t(tokens) * c.hidden_size);
    for (auto* x : {&q_, &attn_}) x->resize(tokens * q_cols);
    for (auto* x : {&k_, &v_}) x->resize(tokens * kv_cols);
    for (auto* x : {&gate_, &up_}) x->resize(size_t(tokens) * c.intermediate_size);
    logits_.resize(size_t(tokens) * c.vocab_size);
    cpu::embed(pool_, h_, model_.weights.token_embd, ids);
    for (uint32_t i = 0; i < c.num_hidden_layers; i++) layer(i, tokens);
    position_ += tokens;
    cpu::rms_norm(pool_, a_, h_, to_floats(model_.weights.output_norm), c.rms_norm_eps);
    cpu::matmul(pool_, {{logits_, model_.weights.output}}, a_);
    if (!std::ranges::all_of(logits_, [](float v) { return std::isfinite(v); }))
        fail_nonfinite(cpu::find_nonfinite(cache_, position_));
    for (uint32_t t = 0; t < tokens; t++) each(t, std::span(logits_).subspan(size_t(t) * c.vocab_size, c.vocab_size));
    return !progress || progress(tokens, tokens);
}

} // namespace

std::unique_ptr<Forward> make_faulty_forward(const Model& model, const KvOptions& kv, uint32_t context_size, Fault fault) {
    return std::make_unique<FaultyForward>(model, kv, context_size, fault);
}

} // namespace tq::test
