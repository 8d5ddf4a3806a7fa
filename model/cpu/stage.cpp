// The CPU engine as a Stage: the network, the cache's vectors and a pool of threads. Rows come in two kinds. A block is rows of
// prompts, whose kernels take many rows at once and whose bits depend on the slice. Separate rows are tokens of answers: each
// gets the bits that it would get alone, however many run together. If all matrices have integer products for blocks, too
// (has_alike_rows), rows of a block have these bits as well.
// With a part of the model (halves) the hidden state comes in h and goes out there; without h it stays in x_.
// A run is stopped between layers by an exception, since all functions between here and there would have to pass a flag on.
#include "model/cpu/stage.h"
#include "base/mapped_file.h"
#include "model/cpu/forward.h"
#include "model/cpu/steps.h"
#include <algorithm>
#include <fmt/format.h>
#include <numeric>

namespace tq {
namespace {

struct StoppedBetweenLayers {};

class CpuStage final : public Stage {
  public:
    CpuStage(const Config& config, std::shared_ptr<const LoadedWeights> weights, const Cache& cache,
             const ForwardOptions& options)
        : options_(options), on_result_(host::named(options_.tap)), pool_(options.threads),
          vectors_(cache, config.num_key_value_heads, host::layer_codecs(config, options.kv), options.batch_size, options.held,
                   cpu::settle, config.mtp ? config.hidden_size : 0),
          net_(config, std::move(weights), options.kv, vectors_, options.context_size), alike_(cpu::has_alike_rows(net_)) {}

    bool run_block(HalfRange halves, const PassRows& rows, uint32_t, std::span<float> h, const KeepGoing& keep_going) override {
        return run(halves, rows, h, false, keep_going);
    }
    bool run_separate(HalfRange halves, const PassRows& rows, std::span<float> h, std::span<const float>* logits,
                      const KeepGoing& keep_going) override;
    std::span<const float> run_head(std::span<const uint32_t> rows, std::span<const float> h, bool separate) override {
        return run_head(rows, h, separate, cpu::head).logits;
    }
    std::span<const float> run_last_norm(std::span<const uint32_t> rows, std::span<const float> h) override {
        return run_head(rows, h, true, cpu::last_norm).a;
    }
    bool drafts() const override { return net_.mtp.has_value(); }
    std::span<const float> run_draft(const PassRows& rows, DraftIds ids) override;
    PassLimits limits() const override;
    std::string computation() const override;
    CacheVectors& vectors() override { return vectors_; }

  private:
    bool run(HalfRange halves, const PassRows& rows, std::span<float> h, bool separate, const KeepGoing& keep_going);
    void run_halves(host::Pass& pass, HalfRange halves, std::span<float> h);
    using Head = void (*)(host::Pass&, const host::Network&, host::Activations&);
    host::Activations& run_head(std::span<const uint32_t> rows, std::span<const float> h, bool separate, Head head);

    const ForwardOptions options_;
    const host::OnResult on_result_;
    ThreadPool pool_;
    host::HostVectors vectors_;
    const host::Network net_;
    const bool alike_; // a row has the same bits in a block as alone
    host::Activations x_, head_;
};

std::string CpuStage::computation() const {
    const bool alike = limits().kernels.tokens_alike();
    return fmt::format("CPU, {}, {}", cpu::instruction_set(),
                       alike ? "rows alike" : fmt::format("blocks of {}", options_.batch_size));
}

// A part of a model gets its hidden state from h and leaves it there.
void CpuStage::run_halves(host::Pass& pass, HalfRange halves, std::span<float> h) {
    std::ranges::copy(h, x_.h.begin());
    for (uint32_t half = halves.begin; half < halves.end; half++) {
        const host::Layer& l = net_.layers[half / 2];
        pass.begin(l);
        half == attention_of(l.number) ? cpu::first_half(pass, l, x_) : cpu::feed_forward_half(pass, l, x_);
    }
    std::ranges::copy(x_.h, h.begin());
}

// Throws Error, before these rows count, if the model's file has been truncated.
bool CpuStage::run(HalfRange halves, const PassRows& rows, std::span<float> h, bool separate, const KeepGoing& keep_going) try {
    const std::vector<host::Row> all = host::rows_of(rows);
    x_.ids = rows.ids;
    x_.resize(net_.config, all.size());
    host::Pass pass(pool_, net_, all, on_result_, separate || alike_);
    pass.in_blocks = !separate;
    pass.on_layer = [&] {
        if (keep_going && !keep_going()) throw StoppedBetweenLayers();
    };
    h.empty() ? cpu::layers(pass, net_, x_) : run_halves(pass, halves, h);
    x_.ids = {};
    check_mapped_files();
    return true;
} catch (const StoppedBetweenLayers&) {
    return false;
}

bool CpuStage::run_separate(HalfRange halves, const PassRows& rows, std::span<float> h, std::span<const float>* logits,
                            const KeepGoing& keep_going) {
    if (!run(halves, rows, h, true, keep_going)) return false;
    if (logits == nullptr) return true;
    std::vector<uint32_t> all(rows.count());
    std::iota(all.begin(), all.end(), 0);
    *logits = run_head(all, h, true);
    return true;
}

host::Activations& CpuStage::run_head(std::span<const uint32_t> rows, std::span<const float> h, bool separate, Head head) {
    const size_t cols = net_.config.hidden_size;
    const std::span<const float> from = h.empty() ? x_.h : h;
    head_.resize_head(net_.config, rows.size());
    for (size_t i = 0; i < rows.size(); i++) std::ranges::copy(from.subspan(rows[i] * cols, cols), &head_.h[i * cols]);
    const std::vector<host::Row> places(rows.size()); // the head has no positions
    host::Pass pass(pool_, net_, places, on_result_, separate || alike_);
    head(pass, net_, head_);
    check_mapped_files();
    return head_;
}

std::span<const float> CpuStage::run_draft(const PassRows& rows, DraftIds ids) {
    const std::vector<host::Row> all = host::rows_of(rows);
    x_.ids = rows.ids;
    x_.resize(net_.config, all.size());
    x_.resize_head(net_.config, all.size());
    host::Pass pass(pool_, net_, all, on_result_, true);
    const Tensor& output = net_.mtp->output.tensor;
    if (ids == DraftIds::likely && output.rows > likely_ids) {
        pass.shortened = {&output, likely_ids};
        x_.logits.resize(all.size() * likely_ids);
    }
    cpu::draft(pass, net_, x_);
    x_.ids = {};
    check_mapped_files();
    return x_.logits;
}

// Slices of up to one and a half passes of separate rows are faster as separate rows than as a block in fp32, also at 2000
// positions, where blocks save attention. In integers a block is faster as soon as a pass is full.
PassLimits CpuStage::limits() const {
    constexpr uint32_t head_rows = 16;
    const uint32_t separate = cpu::max_separate_rows(net_), separate_slice = alike_ ? separate : separate + separate / 2;
    BlockKernels kernels{.block = options_.batch_size, .many = alike_ ? 1 : separate_slice + 1};
    if (options_.deterministic || options_.batch_size <= separate_slice) kernels = {};
    return {.kernels = kernels,
            .deterministic = options_.deterministic && !alike_, // blocks have the same bits, and are faster
            .batch_size = options_.batch_size,
            .short_block = 0,
            .max_separate_rows = separate,
            .min_separate_rows = std::min(8u, separate), // measured: two groups of 4 take as long as 8 rows
            .separate_room = separate,
            .separate_slice = separate_slice,
            .max_block_spans = options_.slots,
            .max_head_rows = head_rows,
            .max_hidden_rows = separate};
}

} // namespace

std::unique_ptr<Stage> make_cpu_stage(const Config& config, const Weights& weights, const Cache& cache,
                                      const ForwardOptions& options, const LoadProgress& on_load) {
    const Weights held = held_weights(weights, options.held);
    const bool fits = plan_cpu_memory(config, held, options).fits();
    ThreadPool pool(options.threads);
    auto loaded = std::make_shared<const LoadedWeights>(
        load_weights(pool, held, on_load, fits ? MappedMatrices::check : MappedMatrices::leave));
    return make_cpu_stage(config, std::move(loaded), cache, options);
}

std::unique_ptr<Stage> make_cpu_stage(const Config& config, std::shared_ptr<const LoadedWeights> weights, const Cache& cache,
                                      const ForwardOptions& options) {
    return std::make_unique<CpuStage>(config, std::move(weights), cache, options);
}

} // namespace tq
