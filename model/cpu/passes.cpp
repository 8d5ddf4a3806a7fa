#include "base/ensure.h"
#include "base/error.h"
#include "base/mapped_file.h"
#include "base/system_memory.h"
#include "model/cpu/forward.h"
#include "model/cpu/steps.h"
#include <algorithm>
#include <cmath>
#include <optional>

namespace tq {
namespace {

ForwardOptions with_batch_size(ForwardOptions options) {
    if (options.batch_size == 0) options.batch_size = cpu_batch_size;
    return options;
}

// Returns the size in bytes of the windows, each with room for one more block of tokens.
uint64_t window_bytes(const Config& c, const ForwardOptions& options) {
    KvOptions kv = options.kv;
    kv.window += kv.window == 0 ? 0 : with_batch_size(options).batch_size;
    return kv_window_bytes(kv, c.num_hidden_layers, c.num_key_value_heads, c.head_dim);
}

// Adapts `tap`, which gets results by name alone.
host::OnResult named(Tap tap) {
    if (!tap) return {};
    return [tap = std::move(tap)](const host::Pass& pass, std::string_view name, std::span<const float> values) {
        if (values.empty()) return;
        if (pass.layer() == nullptr) return tap(name, values);
        tap(fmt::format("layer {} {}", pass.layer()->number, name), values);
    };
}

class CpuForward final : public Forward {
  public:
    CpuForward(const Config& config, std::shared_ptr<const LoadedWeights> weights, const ForwardOptions& options)
        : options_(with_batch_size(options)), on_result_(named(options_.tap)), pool_(options.threads),
          net_(config, std::move(weights), options.kv, options.context_size, options.first_capacity(), options_.batch_size) {}

    std::span<const float> run(std::span<const uint32_t> ids, const Progress& progress) override {
        ENSURE(!ids.empty() && ids.size() <= options_.context_size - position_, "{} tokens at {}", ids.size(), position_);
        const uint32_t start = position_;
        make_room(uint32_t(ids.size()));
        std::optional<host::Pass> pass;
        for (size_t done = 0; done < ids.size();) {
            const std::span block = ids.subspan(done, std::min<size_t>(options_.batch_size, ids.size() - done));
            pass.emplace(run_layers(block, on_result_));
            position_ += uint32_t(block.size());
            done += block.size();
            if (progress && !progress(uint32_t(done), uint32_t(ids.size()))) return {};
        }
        run_head(*pass, pass->rows - 1, 1, start);
        return x_.logits;
    }

    bool run_all(std::span<const uint32_t> ids, const EachLogits& each, const Progress& progress) override;

    void truncate(uint32_t n) override {
        ENSURE(n <= position_, "{} of {}", n, position_);
        go_back(n);
    }

    void repeat_to(uint32_t n) override {
        ENSURE(position_ > 0 && position_ <= n && n <= options_.context_size, "{} to {}", position_, n);
        make_room(n - position_);
        host::repeat(net_.cache, position_, n);
        each_window([&](host::WindowVectors& window) { window.positions.repeated(position_, n, window.k.capacity); });
        position_ = n;
    }

    StoredSide stored(uint32_t layer, KvSide side) override {
        ENSURE(layer < net_.cache.size(), "layer {} of {}", layer, net_.cache.size());
        return (side == KvSide::key ? net_.cache[layer].k : net_.cache[layer].v).stored(position_);
    }

    void restore(uint32_t tokens, const StoredSource& source) override {
        ENSURE(tokens <= options_.context_size, "{} of {}", tokens, options_.context_size);
        position_ = 0;
        make_room(tokens);
        for (uint32_t i = 0; i < net_.cache.size(); i++) {
            net_.cache[i].k.restore(source(i, KvSide::key));
            net_.cache[i].v.restore(source(i, KvSide::value));
        }
        each_window([&](host::WindowVectors& window) { window.positions.begin = tokens; });
        position_ = tokens;
    }

    uint32_t position() const override { return position_; }
    uint32_t context_size() const override { return options_.context_size; }
    uint32_t capacity() const override { return host::capacity(net_.cache); }
    const KvOptions& kv() const override { return options_.kv; }
    uint64_t kv_bytes_per_token() const override { return tq::kv_bytes_per_token(net_.config, options_.kv); }

  private:
    uint64_t cache_bytes() const {
        uint64_t bytes = 0;
        for (const host::LayerCache& layer : net_.cache)
            bytes += layer.k.bytes(layer.k.capacity) + layer.v.bytes(layer.v.capacity);
        return bytes;
    }
    void make_room(uint32_t tokens);

    template <class Use> void each_window(const Use& use) {
        for (host::LayerCache& layer : net_.cache)
            if (layer.window) use(*layer.window);
    }
    void go_back(uint32_t to) {
        each_window([&](host::WindowVectors& window) { window.positions.forget(position_, to); });
        position_ = to;
    }

    host::Pass run_layers(std::span<const uint32_t> ids, const host::OnResult& on_result);
    void run_head(host::Pass& pass, uint32_t first, uint32_t count, uint32_t start);
    [[noreturn]] void report_nonfinite(uint32_t start);

    const ForwardOptions options_;
    const host::OnResult on_result_;
    ThreadPool pool_;
    host::Network net_;
    host::Activations x_;
    uint32_t position_ = 0;
};

// Grows the cache, if necessary, for `tokens` tokens at position_; to no more than that where memory is short.
void CpuForward::make_room(uint32_t tokens) {
    const uint32_t needed = position_ + tokens, now = capacity();
    if (needed <= now) return;
    const uint64_t taken = net_.weights->weights.bytes() + cache_bytes(), memory = physical_memory_bytes(),
                   left = memory - std::min(memory, taken);
    uint32_t next = options_.next_capacity(now, needed);
    if (host::growth_bytes(net_.cache, next) > left) next = options_.next_capacity(0, needed);
    const GrowthFailure failure{position_, tokens, host::growth_bytes(net_.cache, next), left};
    if (failure.bytes > left) fail_growth(failure, "this machine");
    try {
        host::grow(net_.cache, position_, next);
    } catch (const std::bad_alloc&) { // the process may have less than the machine
        fail_growth({position_, tokens, failure.bytes, 0}, "this program");
    }
}

// Runs a block that begins at position_. Throws Error, before these tokens count, where the model's file has been truncated.
host::Pass CpuForward::run_layers(std::span<const uint32_t> ids, const host::OnResult& on_result) {
    x_.ids = ids;
    x_.resize(net_.config, ids.size());
    host::Pass pass(pool_, net_, position_, uint32_t(ids.size()), on_result);
    cpu::layers(pass, net_, x_);
    x_.ids = {};
    check_mapped_files();
    return pass;
}

// Computes the logits of `count` tokens of the block, from its `first`. `start`: where to return to when not finite.
void CpuForward::run_head(host::Pass& pass, uint32_t first, uint32_t count, uint32_t start) {
    x_.logits.resize(size_t(count) * net_.config.vocab_size);
    pass.begin_head(first, count);
    cpu::head(pass, net_, x_);
    check_mapped_files();
    if (!std::ranges::all_of(x_.logits, [](float v) { return std::isfinite(v); })) report_nonfinite(start);
}

bool CpuForward::run_all(std::span<const uint32_t> ids, const EachLogits& each, const Progress& progress) {
    constexpr uint32_t rows = 16; // rows whose logits are computed at a time
    ENSURE(!ids.empty() && ids.size() <= options_.context_size - position_, "{} tokens at {}", ids.size(), position_);
    const uint32_t start = position_, vocab = net_.config.vocab_size;
    const host::OnResult untapped;
    make_room(uint32_t(ids.size()));
    for (uint32_t done = 0; done < ids.size();) {
        const std::span block = ids.subspan(done, std::min<size_t>(options_.batch_size, ids.size() - done));
        host::Pass pass = run_layers(block, untapped);
        position_ += uint32_t(block.size());
        for (uint32_t first = 0; first < block.size(); first += rows) {
            const uint32_t count = std::min(rows, uint32_t(block.size()) - first);
            run_head(pass, first, count, start);
            for (uint32_t i = 0; i < count; i++) each(done + first + i, std::span(x_.logits).subspan(size_t(i) * vocab, vocab));
        }
        done += uint32_t(block.size());
        if (progress && !progress(done, uint32_t(ids.size()))) return false;
    }
    return true;
}

void CpuForward::report_nonfinite(uint32_t start) {
    const auto where = host::find_nonfinite(net_.cache, position_);
    go_back(start);
    fail_nonfinite(where);
}

void check_memory(const Config& config, const Weights& weights, const ForwardOptions& options) {
    MemoryPlan plan = plan_cpu_memory(config, weights, options);
    plan.kv_cache = kv_bytes_per_token(config, options.kv) * options.first_capacity() + window_bytes(config, options);
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
    const uint64_t batch = with_batch_size(options).batch_size;
    const uint64_t q_cols = uint64_t(c.num_attention_heads) * c.head_dim, kv_cols = uint64_t(c.num_key_value_heads) * c.head_dim;
    MemoryPlan plan;
    plan.weights = weights.bytes();
    plan.kv_cache = kv_bytes_per_token(c, options.kv) * options.last_capacity() + window_bytes(c, options);
    plan.scratch = 4 * (batch * (2 * c.hidden_size + 2 * q_cols + 2 * kv_cols + 2 * c.intermediate_size) + c.vocab_size +
                        uint64_t(options.context_size) * c.head_dim); // activations, logits, rotary table
    plan.available = physical_memory_bytes();
    return plan;
}

} // namespace tq
