#include "conformance/logits.h"
#include "model/cpu/reference.h"
#include "model/load.h"
#include "model/rope.h"
#include <algorithm>
#include <cmath>
#include <limits>

namespace tq::conformance {
namespace {

constexpr uint32_t prompt_tokens = 10; // then one by one
// Of 2-bit codes, one that falls the other side of a threshold moves the logits by a tenth. That is rare, and no other prompt
// shows it; what a kernel does wrong, each shows.
constexpr uint32_t prompts = 3;
constexpr double most_products = 6e8; // that the reference makes in the layers, for one prompt, about
constexpr uint32_t least_layers = 2;

std::vector<uint32_t> make_prompt(uint32_t number, uint32_t vocab_size) {
    std::vector<uint32_t> ids;
    for (uint32_t i = 1; i <= check_tokens; i++)
        ids.push_back(uint32_t((number * check_tokens + i) * 2654435761ull % vocab_size));
    return ids;
}

// The steps of model/cpu/forward.cpp with the plain kernels.
class Reference {
  public:
    Reference(const CutModel& model, const KvOptions& kv)
        : config_(model.config), loaded_(load_weights(pool_, model.weights)), rope_(rope_table(config_, check_tokens)) {
        for (uint32_t i = 0; i < config_.num_hidden_layers; i++) {
            const LayerWeights& w = loaded_.weights.layers[i];
            cache_.push_back({side(kv, i, KvSide::key), side(kv, i, KvSide::value)});
            cache_.back().keep_recent(kv.recent, check_tokens);
            norms_.push_back(head_norms(kv.conditioning_of(i, config_.num_hidden_layers), i, to_floats(w.attn_q_norm),
                                        to_floats(w.attn_k_norm)));
        }
    }

    std::vector<float> run(std::span<const uint32_t> ids);
    void forget() { position_ = 0; }

  private:
    cpu::CacheSide side(const KvOptions& kv, uint32_t layer, KvSide which) const {
        return {kv.codec(layer, config_.num_hidden_layers, which, config_.head_dim), config_.num_key_value_heads, check_tokens};
    }
    void layer(std::vector<float>& h, uint32_t i, size_t tokens);

    const Config& config_;
    ThreadPool pool_;
    LoadedWeights loaded_;
    std::vector<float> rope_;
    std::vector<cpu::LayerCache> cache_;
    std::vector<HeadNorms> norms_;
    uint32_t position_ = 0;
};

void Reference::layer(std::vector<float>& h, uint32_t i, size_t tokens) {
    const Config& c = config_;
    const LayerWeights& w = loaded_.weights.layers[i];
    const cpu::LayerCache& cache = cache_[i];
    const HeadNorms& norms = norms_[i];
    const ref::Rope rope{rope_, position_};
    const size_t q_cols = size_t(c.num_attention_heads) * c.head_dim, kv_cols = size_t(c.num_key_value_heads) * c.head_dim;
    std::vector<float> a(h.size()), q(tokens * q_cols), k(tokens * kv_cols), v(k.size()), attn(q.size()),
        gate(tokens * c.intermediate_size), up(gate.size());

    const Rotation* rotation = is_rotated(cache.k.codec.type) ? &cache.k.codec.rotation : nullptr;
    const float q_scale = 1 / std::sqrt(float(c.head_dim)) / (rotation != nullptr ? rotation->gain() : 1);
    ref::rms_norm(pool_, a, h, to_floats(w.attn_norm), c.rms_norm_eps);
    ref::matmul(pool_, q, w.attn_q, a);
    ref::matmul(pool_, k, w.attn_k, a);
    ref::matmul(pool_, v, w.attn_v, a);
    ref::q_norm_rope(pool_, q, norms.q, rope, c.num_attention_heads, c.rms_norm_eps, q_scale, rotation, norms.q_conditions);
    ref::kv_append(pool_, cache.k, k, norms.k, rope, c.rms_norm_eps, norms.k_conditions,
                   cache.recent ? &cache.recent->k : nullptr);
    ref::kv_append(pool_, cache.v, v, {}, rope, 0, {}, cache.recent ? &cache.recent->v : nullptr);
    ref::attention(pool_, attn, q, cache, c.num_attention_heads, position_);
    ref::matmul(pool_, h, w.attn_output, attn, true);

    ref::rms_norm(pool_, a, h, to_floats(w.ffn_norm), c.rms_norm_eps);
    ref::matmul(pool_, gate, w.ffn_gate, a);
    ref::matmul(pool_, up, w.ffn_up, a);
    ref::swiglu(pool_, gate, up);
    ref::matmul(pool_, h, w.ffn_down, gate, true);
}

std::vector<float> Reference::run(std::span<const uint32_t> ids) {
    const Weights& w = loaded_.weights;
    std::vector<float> h(ids.size() * config_.hidden_size), last(config_.hidden_size), logits(config_.vocab_size);
    ref::embed(pool_, h, w.token_embd, ids);
    for (uint32_t i = 0; i < config_.num_hidden_layers; i++) layer(h, i, ids.size());
    position_ += uint32_t(ids.size());
    ref::rms_norm(pool_, last, std::span(h).last(last.size()), to_floats(w.output_norm), config_.rms_norm_eps);
    ref::matmul(pool_, logits, w.output, last);
    return logits;
}

} // namespace

double error_limit(const KvOptions& kv, bool halves) {
    if (kv.k != KvType::f32 || kv.v != KvType::f32) return 0.05;
    return halves ? 0.01 : 1e-4;
}

double relative_error(std::span<const float> a, std::span<const float> b) {
    double error = 0, norm = 0;
    for (size_t i = 0; i < b.size(); i++) {
        error += (double(a[i]) - b[i]) * (double(a[i]) - b[i]);
        norm += double(b[i]) * b[i];
    }
    return a.size() == b.size() && norm > 0 ? std::sqrt(error / norm) : std::numeric_limits<double>::quiet_NaN();
}

CutModel cut_model(const Config& config, const Weights& weights) {
    const LayerWeights& l = weights.layers[0];
    double layer = 0;
    for (const Tensor* t : {&l.attn_q, &l.attn_k, &l.attn_v, &l.attn_output, &l.ffn_gate, &l.ffn_up, &l.ffn_down})
        layer += double(t->rows) * t->cols;
    CutModel cut{config, weights};
    const auto affordable = uint32_t(std::min(most_products / (layer * check_tokens), 1e6));
    cut.config.num_hidden_layers = std::min(config.num_hidden_layers, std::max(affordable, least_layers));
    cut.weights.layers.resize(cut.config.num_hidden_layers);
    return cut;
}

std::vector<std::vector<float>> reference_logits(const CutModel& model, const KvOptions& kv,
                                                 const std::function<bool()>& keep_going) {
    Reference reference(model, kv);
    std::vector<std::vector<float>> out;
    for (uint32_t number = 0; number < prompts; number++) {
        const std::vector<uint32_t> ids = make_prompt(number, model.config.vocab_size);
        reference.forget();
        out.push_back(reference.run(std::span(ids).first(prompt_tokens)));
        for (uint32_t i = prompt_tokens; i < check_tokens; i++) {
            if (!keep_going()) return {};
            out.push_back(reference.run(std::span(ids).subspan(i, 1)));
        }
    }
    return out;
}

LogitsCheck compare_logits(Forward& forward, const std::vector<std::vector<float>>& reference, const CutModel& model,
                           bool halves) {
    LogitsCheck check{std::numeric_limits<double>::quiet_NaN(), error_limit(forward.kv(), halves),
                      model.config.num_hidden_layers};
    size_t next = 0;
    for (uint32_t number = 0; number < prompts; number++) {
        const std::vector<uint32_t> ids = make_prompt(number, model.config.vocab_size);
        double worst = 0;
        const auto compare = [&](std::span<const float> logits) {
            const double error = relative_error(logits, reference[next++]);
            if (!std::isnan(worst) && !(error <= worst)) worst = error; // a NaN stays
        };
        forward.truncate(0);
        compare(forward.run(std::span(ids).first(prompt_tokens)));
        for (uint32_t i = prompt_tokens; i < check_tokens; i++) compare(forward.run(std::span(ids).subspan(i, 1)));
        if (!(check.error <= worst)) check.error = worst;
        if (check.passed()) break;
    }
    return check;
}

} // namespace tq::conformance
