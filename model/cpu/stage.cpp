#include "model/cpu/stage.h"
#include "base/mapped_file.h"
#include "model/cpu/forward.h"
#include "model/cpu/schedule.h"
#include "model/cpu/steps.h"
#include <algorithm>
#include <fmt/format.h>

namespace tq {
namespace {

class CpuStage final : public Stage {
  public:
    CpuStage(const Config& config, const Weights& weights, const Cache& cache, const ForwardOptions& options,
             const LoadProgress& on_load)
        : options_(options), on_result_(host::named(options_.tap)), pool_(options.threads),
          vectors_(cache, config.num_key_value_heads, host::layer_codecs(config, options.kv), options.batch_size, options.held),
          net_(config, load(config, held_weights(weights, options.held), on_load), options.kv, vectors_, options.context_size) {}

    bool run_block(HalfRange halves, const PassRows& rows, uint32_t, std::span<float> h,
                   const std::function<bool()>& keep_going) override {
        return run(halves, rows, h, false, keep_going);
    }
    void run_separate(HalfRange halves, const PassRows& rows, std::span<float> h) override { run(halves, rows, h, true, {}); }
    std::span<const float> run_head(std::span<const float> h, bool separate) override {
        return run_head(h, separate, cpu::head).logits;
    }
    std::span<const float> run_last_norm(std::span<const float> h) override { return run_head(h, true, cpu::last_norm).a; }
    PassLimits limits() const override;
    std::string computation() const override {
        return fmt::format("CPU, {}, {} threads", cpu::instruction_set(), pool_.threads());
    }

    PageLayout page_layout() const override { return vectors_.page_layout(); }
    void read_page(uint32_t page, uint32_t tokens, std::span<std::byte> bytes) const override {
        vectors_.read_page(page, tokens, bytes);
    }
    void write_page(uint32_t page, uint32_t tokens, std::span<const std::byte> bytes) override {
        vectors_.write_page(page, tokens, bytes);
    }
    StoredSide stored(uint32_t slot, uint32_t layer, KvSide side) override { return vectors_.stored(slot, layer, side); }
    void copy_page(uint32_t from, uint32_t to, uint32_t tokens) override { vectors_.copy_page(from, to, tokens); }
    void copy_window(uint32_t from, uint32_t to) override { vectors_.copy_window(from, to); }
    void repeat(uint32_t slot, uint32_t length, uint32_t to) override { vectors_.repeat(slot, length, to); }
    std::optional<std::string> find_nonfinite(uint32_t slot) const override { return vectors_.find_nonfinite(slot); }

  private:
    std::shared_ptr<const LoadedWeights> load(const Config& config, const Weights& held, const LoadProgress& on_load);
    bool run(HalfRange halves, const PassRows& rows, std::span<float> h, bool separate, const std::function<bool()>& keep_going);
    using Head = void (*)(host::Pass&, const host::Network&, host::Activations&);
    host::Activations& run_head(std::span<const float> h, bool separate, Head head);

    const ForwardOptions options_;
    const host::OnResult on_result_;
    ThreadPool pool_;
    const host::KvVectors vectors_;
    const host::Network net_;
    host::Activations x_, head_;
};

// Weights that exceed the memory are left in their file, as in a whole model on the CPU.
std::shared_ptr<const LoadedWeights> CpuStage::load(const Config& config, const Weights& held, const LoadProgress& on_load) {
    const bool fits = plan_cpu_memory(config, held, options_).fits();
    return std::make_shared<const LoadedWeights>(
        load_weights(pool_, held, on_load, fits ? MappedMatrices::check : MappedMatrices::leave));
}

bool CpuStage::run(HalfRange halves, const PassRows& rows, std::span<float> h, bool separate,
                   const std::function<bool()>& keep_going) {
    std::vector<host::Row> all;
    for (const PassRow& row : rows.rows) all.push_back({row.slot, row.position});
    x_.resize(net_.config, all.size());
    std::ranges::copy(h, x_.h.begin());
    host::Pass pass(pool_, net_, all, on_result_, separate);
    for (uint32_t half = halves.begin; half < halves.end; half++) {
        if (keep_going && !keep_going()) return false;
        const host::Layer& l = net_.layers[half / 2];
        pass.begin(l);
        half == attention_of(l.number) ? cpu::attention_half(pass, l, x_) : cpu::feed_forward_half(pass, l, x_);
    }
    check_mapped_files();
    std::ranges::copy(x_.h, h.begin());
    return true;
}

host::Activations& CpuStage::run_head(std::span<const float> h, bool separate, Head head) {
    const std::vector<host::Row> rows(h.size() / net_.config.hidden_size); // the head has no positions
    head_.resize_head(net_.config, rows.size());
    std::ranges::copy(h, head_.h.begin());
    host::Pass pass(pool_, net_, rows, on_result_, separate);
    head(pass, net_, head_);
    check_mapped_files();
    return head_;
}

PassLimits CpuStage::limits() const {
    constexpr uint32_t head_rows = 16;
    const uint32_t separate = cpu::max_separate_rows(net_), short_slice = cpu::max_short_slice(separate);
    BlockKernels kernels{.block = options_.batch_size};
    if (short_slice < options_.batch_size) kernels.many = short_slice + 1;
    return {.kernels = kernels,
            .deterministic = options_.deterministic,
            .batch_size = options_.batch_size,
            .short_block = 0,
            .max_separate_rows = separate,
            .min_separate_rows = std::min(8u, separate), // measured: two groups of 4 take as long as 8 rows
            .separate_room = separate,
            .max_block_spans = options_.slots,
            .max_head_rows = head_rows,
            .max_hidden_rows = separate};
}

} // namespace

std::unique_ptr<Stage> make_cpu_stage(const Config& config, const Weights& weights, const Cache& cache,
                                      const ForwardOptions& options, const LoadProgress& on_load) {
    return std::make_unique<CpuStage>(config, weights, cache, options, on_load);
}

} // namespace tq
