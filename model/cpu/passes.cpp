#include "base/error.h"
#include "base/mapped_file.h"
#include "base/system_memory.h"
#include "model/cpu/forward.h"
#include "model/cpu/schedule.h"
#include "model/cpu/steps.h"
#include "model/host/run.h"
#include <algorithm>

namespace tq {
namespace {

ForwardOptions with_batch_size(ForwardOptions options) {
    if (options.batch_size == 0) options.batch_size = cpu_batch_size;
    return options;
}

// Returns the size in bytes of a page in the layers whose attention is held.
uint64_t held_page_bytes(const Config& c, const ForwardOptions& options) {
    uint64_t bytes = 0;
    for (uint32_t layer = 0; layer < c.num_hidden_layers; layer++) {
        const KvTypes types = options.kv.at(layer, c.num_hidden_layers);
        if (options.held.attention(layer))
            bytes += c.num_key_value_heads *
                     (page_tokens * (kv_vector_bytes(types.k, c.head_dim) + kv_vector_bytes(types.v, c.head_dim)) +
                      2 * 4 * sink_words(types, c.head_dim));
    }
    return bytes;
}

// Returns the size in bytes of all slots' windows, each with room for the tokens of one more pass; of all layers, at most.
uint64_t window_bytes(const Config& c, const ForwardOptions& options) {
    KvOptions kv = options.kv;
    kv.window += kv.window == 0 ? 0 : with_batch_size(options).batch_size;
    return options.slots * kv_window_bytes(kv, c.num_hidden_layers, c.num_key_value_heads, c.head_dim);
}

class CpuForward final : public Forward {
  public:
    CpuForward(const Config& config, std::shared_ptr<const LoadedWeights> weights, const ForwardOptions& options)
        : options_(with_batch_size(options)), on_result_(host::named(options_.tap)), pool_(options.threads),
          cache_(host::make_cache(config, options_, options_.batch_size)),
          net_(config, std::move(weights), options.kv, cache_.vectors(), options.context_size),
          max_separate_rows_(cpu::max_separate_rows(net_)) {}

    using Forward::run;
    bool run(std::span<const Span> spans, const SpanLogits& each, const Progress& progress) override;

    uint32_t max_separate_rows() const override { return max_separate_rows_; }
    Cache& cache() override { return cache_; }
    const KvOptions& kv() const override { return options_.kv; }
    uint64_t kv_bytes_per_token() const override { return tq::kv_bytes_per_token(net_.config, options_.kv); }
    BlockKernels block_kernels() const override;
    std::string computation() const override;

  private:
    // A row of a pass of which something is wanted: that of id `i` of a span.
    struct Wanted {
        uint32_t row;
        size_t span;
        uint32_t i;
    };

    struct Stopped {}; // thrown where the progress stops a pass between layers
    void run_layers(std::span<const Span> spans, const cpu::PassSlices& pass, const std::function<void()>& on_layer);
    void run_heads(std::span<const Span> spans, const cpu::PassSlices& pass, const host::Run& run, const SpanLogits& each);
    // How the head runs on rows: to logits, as separate rows or as blocks, or only through the last norm.
    enum class Head { separate, block, hidden };
    std::span<const float> run_head(std::span<const Wanted> wanted, Head kind);

    const ForwardOptions options_;
    const host::OnResult on_result_;
    ThreadPool pool_;
    host::KvCache cache_;
    host::Network net_;
    const uint32_t max_separate_rows_;
    std::vector<host::Row> rows_; // of the pass
    std::vector<uint32_t> ids_;   // likewise
    host::Activations x_, head_;
};

// The attention of separate rows is divided among the threads.
std::string CpuForward::computation() const {
    const bool separate = block_kernels().block == 0;
    return fmt::format("CPU, {}, {}", cpu::instruction_set(),
                       separate ? fmt::format("separate rows, {} threads", pool_.threads())
                                : fmt::format("blocks of {}", options_.batch_size));
}

BlockKernels CpuForward::block_kernels() const {
    const uint32_t short_slice = cpu::max_short_slice(max_separate_rows_);
    if (options_.deterministic || options_.batch_size <= short_slice) return {};
    return {.block = options_.batch_size, .many = short_slice + 1};
}

bool CpuForward::run(std::span<const Span> spans, const SpanLogits& each, const Progress& progress) try {
    host::Run run(cache_, spans);
    cpu::Schedule schedule(spans, options_.batch_size, max_separate_rows_, options_.deterministic);
    for (auto pass = schedule.next(); !pass.slices.empty(); pass = schedule.next()) {
        run_layers(spans, pass, [&] {
            if (!run.progressed(0, progress)) throw Stopped();
        });
        run_heads(spans, pass, run, each);
        if (!run.progressed(uint32_t(rows_.size()), progress)) return false;
    }
    return true;
} catch (const Stopped&) {
    return false;
}

// Runs a pass. Throws Error, before these tokens count, where the model's file has been truncated.
void CpuForward::run_layers(std::span<const Span> spans, const cpu::PassSlices& slices, const std::function<void()>& on_layer) {
    rows_.clear();
    ids_.clear();
    for (const auto& [span, first, count] : slices.slices) {
        const uint32_t slot = spans[span].slot, position = cache_.position(slot);
        for (uint32_t i = 0; i < count; i++) {
            rows_.push_back({slot, position + i});
            ids_.push_back(spans[span].ids[first + i]);
        }
    }
    x_.ids = ids_;
    x_.resize(net_.config, rows_.size());
    host::Pass pass(pool_, net_, rows_, on_result_, slices.separate);
    pass.on_layer = on_layer;
    cpu::layers(pass, net_, x_);
    check_mapped_files();
    for (const auto& [span, first, count] : slices.slices) cache_.advance(spans[span].slot, count);
}

// Computes what is wanted of a pass, of a few rows at a time: the logits of separate rows and of the last rows of blocks as
// separate rows, those of all rows of blocks as blocks, and the states of last rows.
void CpuForward::run_heads(std::span<const Span> spans, const cpu::PassSlices& slices, const host::Run& run,
                           const SpanLogits& each) {
    constexpr size_t rows_at_a_time = 16;
    std::vector<Wanted> single, all, hidden;
    const auto finish = [&](std::vector<Wanted>& wanted, Head kind) {
        if (wanted.empty()) return;
        const std::span<const float> results = run_head(wanted, kind);
        run.require_finite(results);
        const size_t cols = results.size() / wanted.size();
        for (size_t at = 0; const Wanted& w : std::exchange(wanted, {})) each(w.span, w.i, results.subspan(at++ * cols, cols));
    };
    uint32_t row = 0;
    for (const auto& [span, first, count] : slices.slices) {
        const Span& of = spans[span];
        for (uint32_t i = first; i < first + count; i++, row++) {
            if (of.logits == Span::Logits::all && !slices.separate) {
                all.push_back({row, span, i});
                if (all.size() == rows_at_a_time) finish(all, Head::block);
            } else if (of.logits == Span::Logits::hidden && i + 1 == of.ids.size()) {
                hidden.push_back({row, span, i});
                if (hidden.size() == max_separate_rows_) finish(hidden, Head::hidden);
            } else if (of.logits == Span::Logits::all || (of.logits == Span::Logits::last && i + 1 == of.ids.size())) {
                single.push_back({row, span, i});
                if (single.size() == max_separate_rows_) finish(single, Head::separate);
            }
        }
    }
    finish(all, Head::block);
    finish(single, Head::separate);
    finish(hidden, Head::hidden);
}

// Returns the results of these rows, which are in head_.
std::span<const float> CpuForward::run_head(std::span<const Wanted> wanted, Head kind) {
    const size_t cols = net_.config.hidden_size;
    std::vector<host::Row> rows;
    head_.resize_head(net_.config, wanted.size());
    for (const Wanted& w : wanted) {
        std::copy_n(&x_.h[w.row * cols], cols, &head_.h[rows.size() * cols]);
        rows.push_back(rows_[w.row]);
    }
    host::Pass pass(pool_, net_, rows, on_result_, kind != Head::block);
    if (kind == Head::hidden)
        cpu::last_norm(pass, net_, head_);
    else
        cpu::head(pass, net_, head_);
    check_mapped_files();
    return kind == Head::hidden ? head_.a : head_.logits;
}

constexpr uint32_t min_pages = 4; // with fewer, unless they are all, nothing is begun

// Returns the options with as many pages as the memory of their plan has room for, beside the weights where these leave any.
// Throws Error where those are too few.
ForwardOptions with_pages(const Config& config, MemoryPlan plan, ForwardOptions options) {
    const uint32_t wanted = options.pages(), least = std::min(wanted, min_pages);
    if (plan.runs()) return options;
    const uint64_t page_bytes = held_page_bytes(config, options);
    plan.kv_cache -= (wanted - least) * page_bytes;
    if (!plan.runs())
        fail("this machine: {}. Choose smaller cache types with -ctk and -ctv (now {}) or a smaller model", describe(plan),
             describe(options.kv));
    const uint64_t left = plan.available - (plan.fits() ? plan.total() : plan.needed());
    options.cache_tokens = uint32_t(least + left / page_bytes) * page_tokens;
    return options;
}

// Where this process may have less memory than the machine has, it takes fewer pages.
std::unique_ptr<Forward> make_with_pages(const Config& config, const std::shared_ptr<const LoadedWeights>& weights,
                                         ForwardOptions options) {
    for (;;) try {
            return std::make_unique<CpuForward>(config, weights, options);
        } catch (const std::bad_alloc&) {
            if (options.pages() <= min_pages) throw;
            options.cache_tokens = options.pages() / 2 * page_tokens;
        }
}

} // namespace

std::unique_ptr<Forward> make_cpu_forward(const Config& config, const Weights& weights, const ForwardOptions& options,
                                          const LoadProgress& on_load) {
    const ForwardOptions fitting = with_pages(config, plan_cpu_memory(config, weights, options), options);
    const auto mapped = plan_cpu_memory(config, weights, fitting).fits() ? MappedMatrices::check : MappedMatrices::leave;
    ThreadPool pool(options.threads);
    return make_with_pages(config, std::make_shared<const LoadedWeights>(load_weights(pool, weights, on_load, mapped)), fitting);
}

std::unique_ptr<Forward> make_cpu_forward(const Config& config, std::shared_ptr<const LoadedWeights> weights,
                                          const ForwardOptions& options) {
    MemoryPlan plan = plan_cpu_memory(config, weights->weights, options);
    plan.mapped -= weights->made_bytes;
    return make_with_pages(config, weights, with_pages(config, plan, options));
}

MemoryPlan plan_cpu_memory(const Config& c, const Weights& weights, const ForwardOptions& options) {
    const uint64_t batch = with_batch_size(options).batch_size;
    const uint64_t q_cols = uint64_t(c.num_attention_heads) * c.head_dim, kv_cols = uint64_t(c.num_key_value_heads) * c.head_dim;
    // Of experts: gate, up and the results of a token's pairs by expert, and their inputs.
    const uint64_t of_experts =
        c.num_experts == 0 ? 0 : 3ull * c.intermediate_size + 2ull * c.num_experts_per_tok * c.hidden_size + c.num_experts;
    MemoryPlan plan;
    plan.weights = weights.bytes();
    plan.mapped = weights.mapped_bytes();
    plan.kv_cache = held_page_bytes(c, options) * options.pages() + window_bytes(c, options);
    plan.scratch = 4 * (batch * (2 * c.hidden_size + 2 * q_cols + 2 * kv_cols + 2 * c.intermediate_size + of_experts) +
                        uint64_t(options.slots) * c.vocab_size +
                        uint64_t(options.context_size) * c.head_dim); // activations, logits, rotary table
    plan.available = std::min(physical_memory_bytes(), options.memory_bytes);
    return plan;
}

} // namespace tq
