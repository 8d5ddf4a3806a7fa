// A Forward made of a cache and one Stage, which may be a whole device or a Pipeline of several. The stage computes. run_spans()
// and run_drafts(), which know no device, choose the rows of a pass and keep the cache's books.
#include "model/stages/staged_forward.h"
#include "base/ensure.h"
#include "model/draft_run.h"
#include "model/span_run.h"
#include "shaders/sampling.h"
#include <array>

namespace tq {
namespace {

// Returns how many tokens may be run before the host sees the first. The text may end with that: the others are then taken back,
// which recurrent states do not allow.
uint32_t max_ahead(const Cache& cache) { return cache.shape().recurrent ? 1 : SAMPLING_STEPS; }

class StagedForward final : public Forward {
  public:
    StagedForward(const Config& config, const ForwardOptions& options, const MakeStage& make)
        : halves_{0, head_half(config.num_hidden_layers)}, cache_(cache_shape(options, config)), stage_(make(cache_, options)),
          limits_(stage_->limits()), facts_{.kv = options.kv,
                                            .kv_bytes_per_token = tq::kv_bytes_per_token(config, options.kv),
                                            .max_separate_rows = limits_.max_separate_rows,
                                            .drafts = config.mtp && stage_->drafts(),
                                            .max_sampled = std::min(stage_->max_sampled(), max_ahead(cache_)),
                                            .block_kernels = limits_.kernels,
                                            .computation = stage_->computation()} {
        cache_.store_in(stage_->vectors());
    }

    using Forward::run;
    bool run(std::span<const Span> spans, const SpanLogits& each, const Progress& progress) override {
        return run_spans(*stage_, limits_, halves_, cache_, spans, each, progress);
    }
    std::vector<uint32_t> run_sampled(uint32_t slot, uint32_t id, uint32_t n, const DeviceSampling& sampling) override;
    std::vector<std::vector<uint32_t>> draft(std::span<const DraftStart> starts, uint32_t n, DraftIds ids,
                                             const DraftLogits& each) override {
        RunDraftsAhead ahead;
        if (stage_->max_sampled() > 0)
            ahead = [&](const PassRows& row, uint32_t count, DraftIds requested) {
                const DeviceSampling most_probable{make_sampling_settings(1, 1, 1, 0), std::vector<uint32_t>(count), {}, {}};
                return stage_->run_ahead(row, count, most_probable, requested);
            };
        return run_drafts(
            cache_, starts, n, ids, max_separate_rows(),
            [&](const PassRows& rows, DraftIds requested) { return stage_->run_draft(rows, requested); }, each, ahead);
    }
    void record_again() override { stage_->record_again(); }
    Cache& cache() override { return cache_; }
    const ForwardFacts& facts() const override { return facts_; }

  private:
    const HalfRange halves_;
    Cache cache_;
    const std::unique_ptr<Stage> stage_;
    const PassLimits limits_;
    const ForwardFacts facts_;
};

// Pages for all n tokens are reserved first, and the position is set back to those that were sampled. The first one is counted in
// any case: id itself has been run.
std::vector<uint32_t> StagedForward::run_sampled(uint32_t slot, uint32_t id, uint32_t n, const DeviceSampling& sampling) {
    const uint32_t start = cache_.position(slot);
    ENSURE(n > 0 && n <= max_ahead(cache_) && n <= context_size() - start, "{} tokens at {}", n, start);
    cache_.reserve(slot, n);
    PassRows row;
    row.add(slot, start, {&id, 1}, cache_.window(slot).begin, true, {.begin = cache_.settled(slot)});
    std::vector<uint32_t> ids = stage_->run_ahead(row, n, sampling, {});
    cache_.advance(slot, n);
    cache_.truncate(slot, start + std::max(uint32_t(ids.size()), 1u));
    if (ids.empty()) report_nonfinite(cache_, std::array{Cache::Need{slot, start}});
    return ids;
}

} // namespace

std::unique_ptr<Forward> make_staged_forward(const Config& config, const ForwardOptions& options, const MakeStage& make) {
    return std::make_unique<StagedForward>(config, options, make);
}

} // namespace tq
