#include "model/cpu/forward.h"
#include "base/ensure.h"
#include "base/error.h"
#include "base/system_memory.h"
#include "model/cpu/kernels.h"
#include "model/rope.h"
#include <algorithm>
#include <cmath>

namespace tq {
namespace {

constexpr uint32_t default_batch_size = 128; // tokens of a prefill block

// Of recent tokens, and a block of them.
uint64_t recent_bytes(const Config& c, const ForwardOptions& options) {
    KvOptions kv = options.kv;
    kv.recent += kv.recent == 0 ? 0 : options.batch_size == 0 ? default_batch_size : options.batch_size;
    return kv_recent_bytes(kv, c.num_hidden_layers, c.num_key_value_heads, c.head_dim);
}

struct LayerNorms {
    std::vector<float> attn, ffn;
    HeadNorms heads;
};

class CpuForward final : public Forward {
  public:
    CpuForward(const Config& config, std::shared_ptr<const LoadedWeights> weights, const ForwardOptions& options)
        : config_(config), options_(options), pool_(options.threads), loaded_(std::move(weights)),
          rope_table_(rope_table(config, options.context_size)), output_norm_(to_floats(weights_.output_norm)) {
        if (options_.batch_size == 0) options_.batch_size = default_batch_size;
        for (uint32_t i = 0; i < config.num_hidden_layers; i++) {
            const LayerWeights& w = weights_.layers[i];
            norms_.push_back({to_floats(w.attn_norm), to_floats(w.ffn_norm),
                              head_norms(options.kv.conditioning_of(i, config.num_hidden_layers), i, to_floats(w.attn_q_norm),
                                         to_floats(w.attn_k_norm))});
            cache_.push_back({make_cache(KvSide::key, i), make_cache(KvSide::value, i)});
            cache_.back().keep_recent(options.kv.recent, options_.batch_size);
        }
    }

    std::span<const float> run(std::span<const uint32_t> ids, const Progress& progress) override {
        ENSURE(!ids.empty() && ids.size() <= options_.context_size - position_, "{} tokens at {}", ids.size(), position_);
        const uint32_t start = position_;
        make_room(uint32_t(ids.size()));
        for (size_t done = 0; done < ids.size();) {
            const std::span block = ids.subspan(done, std::min<size_t>(options_.batch_size, ids.size() - done));
            layers(block);
            position_ += uint32_t(block.size());
            done += block.size();
            if (progress && !progress(uint32_t(done), uint32_t(ids.size()))) return {};
        }
        head();
        if (!std::ranges::all_of(logits_, [](float v) { return std::isfinite(v); })) report_nonfinite(start);
        return logits_;
    }

    bool run_all(std::span<const uint32_t> ids, const EachLogits& each, const Progress& progress) override;

    void truncate(uint32_t n) override {
        ENSURE(n <= position_, "{} of {}", n, position_);
        go_back(n);
    }

    void repeat_to(uint32_t n) override {
        ENSURE(position_ > 0 && position_ <= n && n <= options_.context_size, "{} to {}", position_, n);
        make_room(n - position_);
        cpu::repeat(cache_, position_, n);
        each_recent([&](RecentPositions& recent) {
            if (position_ < recent.tokens) recent.begin = n; // there is not enough of them
        });
        position_ = n;
    }

    StoredSide stored(uint32_t layer, KvSide side) override {
        ENSURE(layer < cache_.size(), "layer {} of {}", layer, cache_.size());
        return (side == KvSide::key ? cache_[layer].k : cache_[layer].v).stored(position_);
    }

    void restore(uint32_t tokens, const StoredSource& source) override {
        ENSURE(tokens <= options_.context_size, "{} of {}", tokens, options_.context_size);
        position_ = 0;
        make_room(tokens);
        for (uint32_t i = 0; i < cache_.size(); i++) {
            cache_[i].k.restore(source(i, KvSide::key));
            cache_[i].v.restore(source(i, KvSide::value));
        }
        each_recent([&](RecentPositions& recent) { recent.begin = tokens; });
        position_ = tokens;
    }

    uint32_t position() const override { return position_; }
    uint32_t context_size() const override { return options_.context_size; }
    uint32_t capacity() const override { return cpu::capacity(cache_); }
    const KvOptions& kv() const override { return options_.kv; }
    uint64_t kv_bytes_per_token() const override { return tq::kv_bytes_per_token(config_, options_.kv); }

  private:
    uint64_t cache_bytes() const {
        uint64_t bytes = 0;
        for (const cpu::LayerCache& layer : cache_) bytes += layer.k.bytes(layer.k.capacity) + layer.v.bytes(layer.v.capacity);
        return bytes;
    }
    cpu::CacheSide make_cache(KvSide side, uint32_t layer) const {
        return {options_.kv.codec(layer, config_.num_hidden_layers, side, config_.head_dim), config_.num_key_value_heads,
                options_.first_capacity()};
    }
    void make_room(uint32_t tokens);

    template <class Use> void each_recent(const Use& use) {
        for (cpu::LayerCache& layer : cache_)
            if (layer.recent) use(layer.recent->positions);
    }
    void go_back(uint32_t to) {
        each_recent([&](RecentPositions& recent) { recent.forget(position_, to); });
        position_ = to;
    }

    void tap(std::string_view name, std::span<const float> values) const {
        if (options_.tap) options_.tap(name, values);
    }
    void tap(uint32_t layer, std::string_view name, std::span<const float> values) const {
        if (options_.tap) options_.tap(fmt::format("layer {} {}", layer, name), values);
    }
    void layers(std::span<const uint32_t> ids);
    void head();
    [[noreturn]] void report_nonfinite(uint32_t start);

    const Config config_;
    ForwardOptions options_;
    ThreadPool pool_;
    std::shared_ptr<const LoadedWeights> loaded_;
    const Weights& weights_ = loaded_->weights;
    std::vector<float> rope_table_;
    std::vector<LayerNorms> norms_;
    std::vector<float> output_norm_;
    std::vector<cpu::LayerCache> cache_;
    uint32_t position_ = 0;
    std::vector<float> h_, a_, q_, k_, v_, attn_, gate_, up_, logits_;
};

// Grows the cache, if it must, for `tokens` tokens at position_; only just enough where memory is short.
void CpuForward::make_room(uint32_t tokens) {
    const uint32_t needed = position_ + tokens, now = capacity();
    if (needed <= now) return;
    const uint64_t taken = weights_.bytes() + cache_bytes(), memory = physical_memory_bytes(),
                   left = memory - std::min(memory, taken);
    uint32_t next = options_.next_capacity(now, needed);
    if (cpu::growth_bytes(cache_, next) > left) next = options_.next_capacity(0, needed);
    const GrowthFailure failure{position_, tokens, cpu::growth_bytes(cache_, next), left};
    if (failure.bytes > left) fail_growth(failure, "this machine");
    try {
        cpu::grow(cache_, position_, next);
    } catch (const std::bad_alloc&) { // the process may have less than the machine
        fail_growth({position_, tokens, failure.bytes, 0}, "this program");
    }
}

// The same steps in the same order as model/gpu/forward.cpp.
void CpuForward::layers(std::span<const uint32_t> ids) {
    const Config& c = config_;
    const size_t tokens = ids.size();
    const uint32_t heads = c.num_attention_heads, kv_heads = c.num_key_value_heads;
    const cpu::Rope rope{rope_table_, position_};
    h_.resize(tokens * c.hidden_size);
    a_.resize(tokens * c.hidden_size);
    q_.resize(tokens * heads * c.head_dim);
    attn_.resize(tokens * heads * c.head_dim);
    k_.resize(tokens * kv_heads * c.head_dim);
    v_.resize(tokens * kv_heads * c.head_dim);
    gate_.resize(tokens * c.intermediate_size);
    up_.resize(tokens * c.intermediate_size);

    cpu::embed(pool_, h_, weights_.token_embd, ids);
    tap("embed", h_);
    for (uint32_t i = 0; i < c.num_hidden_layers; i++) {
        const LayerWeights& w = weights_.layers[i];
        const LayerNorms& norm = norms_[i];
        const cpu::LayerCache& cache = cache_[i];

        // attention
        const Rotation* rotation = is_rotated(cache.k.codec.type) ? &cache.k.codec.rotation : nullptr;
        const float q_scale = 1 / std::sqrt(float(c.head_dim)) / (rotation != nullptr ? rotation->gain() : 1);
        cpu::rms_norm(pool_, a_, h_, norm.attn, c.rms_norm_eps);
        tap(i, "attn_norm", a_);
        cpu::matmul(pool_, {{q_, w.attn_q}, {k_, w.attn_k}, {v_, w.attn_v}}, a_);
        tap(i, "k", k_);
        tap(i, "v", v_);
        cpu::q_norm_rope(pool_, q_, norm.heads.q, rope, heads, c.rms_norm_eps, q_scale, rotation, norm.heads.q_conditions);
        tap(i, "q", q_);
        cpu::kv_append(pool_, cache, k_, v_, norm.heads.k, rope, c.rms_norm_eps, norm.heads.k_conditions);
        cpu::attention(pool_, attn_, q_, cache, heads, position_);
        tap(i, "attention", attn_);
        cpu::matmul(pool_, {{h_, w.attn_output, true}}, attn_);
        tap(i, "attn_output", h_);

        // feed-forward
        cpu::rms_norm(pool_, a_, h_, norm.ffn, c.rms_norm_eps);
        tap(i, "ffn_norm", a_);
        cpu::gated_matmul(pool_, gate_, up_, w.ffn_gate, w.ffn_up, a_);
        tap(i, "swiglu", gate_);
        cpu::matmul(pool_, {{h_, w.ffn_down, true}}, gate_);
        tap(i, "h", h_);
    }
}

// Logits of the last token of the last block.
void CpuForward::head() {
    const std::span last = std::span(h_).last(config_.hidden_size), normed = std::span(a_).first(config_.hidden_size);
    logits_.resize(config_.vocab_size);
    cpu::rms_norm(pool_, normed, last, output_norm_, config_.rms_norm_eps);
    tap("output_norm", normed);
    cpu::matmul(pool_, {{logits_, weights_.output}}, normed);
    tap("logits", logits_);
}

bool CpuForward::run_all(std::span<const uint32_t> ids, const EachLogits& each, const Progress& progress) {
    constexpr uint32_t rows = 16; // whose logits are made at a time
    ENSURE(!ids.empty() && ids.size() <= options_.context_size - position_, "{} tokens at {}", ids.size(), position_);
    const uint32_t start = position_, hidden = config_.hidden_size;
    make_room(uint32_t(ids.size()));
    for (uint32_t done = 0; done < ids.size();) {
        const std::span block = ids.subspan(done, std::min<size_t>(options_.batch_size, ids.size() - done));
        layers(block);
        position_ += uint32_t(block.size());
        cpu::rms_norm(pool_, a_, h_, output_norm_, config_.rms_norm_eps);
        for (uint32_t first = 0; first < block.size(); first += rows) {
            const uint32_t count = std::min(rows, uint32_t(block.size()) - first);
            logits_.resize(size_t(count) * config_.vocab_size);
            cpu::matmul(pool_, {{logits_, weights_.output}},
                        std::span(a_).subspan(size_t(first) * hidden, size_t(count) * hidden));
            if (!std::ranges::all_of(logits_, [](float v) { return std::isfinite(v); })) report_nonfinite(start);
            for (uint32_t i = 0; i < count; i++)
                each(done + first + i, std::span(logits_).subspan(size_t(i) * config_.vocab_size, config_.vocab_size));
        }
        done += uint32_t(block.size());
        if (progress && !progress(done, uint32_t(ids.size()))) return false;
    }
    return true;
}

void CpuForward::report_nonfinite(uint32_t start) {
    const auto where = cpu::find_nonfinite(cache_, position_);
    go_back(start);
    fail_nonfinite(where);
}

void check_memory(const Config& config, const Weights& weights, const ForwardOptions& options) {
    MemoryPlan plan = plan_cpu_memory(config, weights, options);
    plan.kv_cache = kv_bytes_per_token(config, options.kv) * options.first_capacity() + recent_bytes(config, options);
    if (!plan.fits())
        fail("this machine: {}. Choose smaller cache types with -ctk and -ctv (now {}) or a smaller model", describe(plan),
             describe(options.kv));
}

} // namespace

std::unique_ptr<Forward> make_cpu_forward(const Config& config, const Weights& weights, const ForwardOptions& options,
                                          const LoadProgress& on_load) {
    check_memory(config, weights, options);
    ThreadPool pool(options.threads);
    const auto loaded = std::make_shared<const LoadedWeights>(load_weights(pool, weights, on_load));
    return std::make_unique<CpuForward>(config, loaded, options);
}

std::unique_ptr<Forward> make_cpu_forward(const Config& config, std::shared_ptr<const LoadedWeights> weights,
                                          const ForwardOptions& options) {
    check_memory(config, weights->weights, options);
    return std::make_unique<CpuForward>(config, std::move(weights), options);
}

MemoryPlan plan_cpu_memory(const Config& c, const Weights& weights, const ForwardOptions& options) {
    const uint64_t batch = options.batch_size == 0 ? default_batch_size : options.batch_size;
    const uint64_t q_cols = uint64_t(c.num_attention_heads) * c.head_dim, kv_cols = uint64_t(c.num_key_value_heads) * c.head_dim;
    MemoryPlan plan;
    plan.weights = weights.bytes();
    plan.kv_cache = kv_bytes_per_token(c, options.kv) * options.last_capacity() + recent_bytes(c, options);
    plan.scratch = 4 * (batch * (2 * c.hidden_size + 2 * q_cols + 2 * kv_cols + 2 * c.intermediate_size) + c.vocab_size +
                        uint64_t(options.context_size) * c.head_dim); // activations, logits, rotary table
    plan.available = physical_memory_bytes();
    return plan;
}

} // namespace tq
