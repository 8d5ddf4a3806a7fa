#include "model/stages/split_forward.h"
#include "base/ensure.h"
#include "model/stages/pipeline.h"
#include <algorithm>
#include <fmt/format.h>

namespace tq {
namespace {

using Stages = std::vector<std::unique_ptr<Stage>>;

// The bookkeeping of the slots, whose vectors each stage has of its layers.
class SplitCache final : public Cache {
  public:
    SplitCache(const Shape& shape, const Split& split, const Stages& stages) : Cache(shape), split_(split), stages_(stages) {}

    PageLayout page_layout() const override { return first().page_layout(); }
    void read_page(uint32_t page, uint32_t tokens, std::span<std::byte> bytes) const override {
        for (const auto& stage : stages_)
            if (stage) stage->read_page(page, tokens, bytes);
    }
    void write_page(uint32_t page, uint32_t tokens, std::span<const std::byte> bytes) override {
        each([&](Stage& stage) { stage.write_page(page, tokens, bytes); });
    }
    StoredSide stored(uint32_t slot, uint32_t layer, KvSide side) override {
        ENSURE(layer < split_.layers(), "layer {} of {}", layer, split_.layers());
        return stages_[split_.device_of(attention_of(layer))]->stored(slot, layer, side);
    }

  protected:
    void copy_page(uint32_t from, uint32_t to, uint32_t tokens) override {
        each([&](Stage& stage) { stage.copy_page(from, to, tokens); });
    }
    void copy_window(uint32_t from, uint32_t to) override {
        each([&](Stage& stage) { stage.copy_window(from, to); });
    }
    void repeat_stored(uint32_t slot, uint32_t length, uint32_t to) override {
        each([&](Stage& stage) { stage.repeat(slot, length, to); });
    }

  private:
    template <class F> void each(const F& use) const {
        for (const auto& stage : stages_)
            if (stage) use(*stage);
    }
    const Stage& first() const { return *stages_[split_.device_of(0)]; }

    const Split& split_;
    const Stages& stages_;
};

// Of all stages the least that one of them takes, and kernels that suit them all.
PassLimits common_limits(const Stages& stages, const ForwardOptions& options) {
    std::optional<PassLimits> all;
    for (const auto& stage : stages) {
        if (!stage) continue;
        const PassLimits one = stage->limits();
        if (!all) all = one;
        for (const auto member : {&PassLimits::batch_size, &PassLimits::max_separate_rows, &PassLimits::separate_room,
                                  &PassLimits::max_block_spans, &PassLimits::max_head_rows, &PassLimits::max_hidden_rows})
            (*all).*member = std::min((*all).*member, one.*member);
        all->min_separate_rows = std::max(all->min_separate_rows, one.min_separate_rows);
        all->short_block = std::max(all->short_block, one.short_block);
        all->kernels.many = std::max(all->kernels.many, one.kernels.many);
    }
    all->kernels.block = options.deterministic ? 0 : all->batch_size;
    return *all;
}

// A block of the whole: several slices. Those that stream weights have other kernels than shorter ones. A pass of separate rows:
// two groups of them for each device.
PassLimits block_limits(PassLimits limits, uint32_t slices, const Split& split) {
    const uint32_t stream_rows = split.stream_rows();
    limits.separate_room = limits.max_separate_rows * (slices > 1 ? 2 * split.devices() : 1);
    limits.batch_size *= slices;
    limits.kernels.block *= slices;
    if (stream_rows > 0 && stream_rows <= limits.batch_size) {
        limits.short_block = std::max(limits.short_block, stream_rows - 1);
        limits.kernels.many = std::max(limits.kernels.many, stream_rows);
    }
    return limits;
}

class SplitForward final : public Forward {
  public:
    SplitForward(const Config& config, const Weights& weights, const ForwardOptions& options, Split split,
                 std::span<const MakeStage> make)
        : config_(config), options_(options), split_(std::move(split)),
          cache_(cache_shape(options, config.num_hidden_layers), split_, stages_), stages_(make_stages(make)),
          slice_limits_(common_limits(stages_, options)),
          limits_(block_limits(slice_limits_, split_.parts().size() > 1 ? slices_of_block : 1, split_)),
          pipeline_(config_, weights.token_embd, split_, stages_, slice_limits_, options_.tap) {}

    using Forward::run;
    bool run(std::span<const Span> spans, const SpanLogits& each, const Progress& progress) override {
        return run_spans(pipeline_, limits_, cache_, spans, each, progress,
                         [this](uint32_t slot) { return find_nonfinite(slot); });
    }

    void record_again() override {
        for (const auto& stage : stages_)
            if (stage) stage->record_again();
    }
    uint32_t max_separate_rows() const override { return limits_.max_separate_rows; }
    Cache& cache() override { return cache_; }
    const KvOptions& kv() const override { return options_.kv; }
    uint64_t kv_bytes_per_token() const override { return tq::kv_bytes_per_token(config_, options_.kv); }
    BlockKernels block_kernels() const override { return limits_.kernels; }
    std::string computation() const override;

  private:
    Stages make_stages(std::span<const MakeStage> make) const;
    std::optional<std::string> find_nonfinite(uint32_t slot) const;

    const Config config_;
    const ForwardOptions options_;
    const Split split_;
    SplitCache cache_;
    const Stages stages_;
    const PassLimits slice_limits_, limits_;
    Pipeline pipeline_;
};

Stages SplitForward::make_stages(std::span<const MakeStage> make) const {
    ENSURE(make.size() == split_.devices() && split_.layers() == config_.num_hidden_layers, "{} devices, {} layers", make.size(),
           split_.layers());
    std::vector<bool> used(split_.devices());
    for (uint32_t half = 0; half < halves_of(split_.layers()); half++) used[split_.device_of(half)] = true;
    Stages stages;
    for (uint32_t device = 0; device < split_.devices(); device++) {
        ForwardOptions own = options_;
        own.held = split_.held(device);
        own.streamed = split_.streamed(device);
        stages.push_back(used[device] ? make[device](cache_, own) : nullptr);
    }
    return stages;
}

std::optional<std::string> SplitForward::find_nonfinite(uint32_t slot) const {
    for (const auto& stage : stages_)
        if (stage)
            if (auto where = stage->find_nonfinite(slot)) return where;
    return std::nullopt;
}

std::string SplitForward::computation() const {
    std::string text = fmt::format("slices of {}", slice_limits_.batch_size);
    if (split_.stream_rows() != 0) text += fmt::format(", weights streamed from {} rows on", split_.stream_rows());
    for (const Part& part : split_.parts()) text += fmt::format(", halves to {} on {}", part.halves.end, part.device);
    for (const auto& stage : stages_)
        if (stage) text += "; " + stage->computation();
    return text;
}

} // namespace

std::unique_ptr<Forward> make_split_forward(const Config& config, const Weights& weights, const ForwardOptions& options,
                                            Split split, std::span<const MakeStage> make) {
    return std::make_unique<SplitForward>(config, weights, options, std::move(split), make);
}

} // namespace tq
