// Moving in the middle of a run. The run has several spans, some of whose logits were passed on already, when an allocation
// fails. The caller is not to notice: no logits twice, none missing. So each span remembers how far it was passed on
// (Interrupted), each slot is cut to the tokens that need not run again, and run_rest() runs the rest. An id whose logits are
// wanted and were not passed on must run again, though its vectors are stored. Drafts run again in any case, because after a move
// they would count as certain. While the model is made again there are not two of them, since memory is what is short: the pages'
// bytes go to host memory (Image), the old model is freed, and LostForward stands in with the tables and, if making the new one
// fails, with the error for all later runs. A window or a state cannot be cut back to the middle of a run, so a checkpoint is
// kept before one that is long enough to matter.
#include "model/stages/placed_forward.h"
#include "base/ensure.h"
#include "shaders/sampling.h"
#include <algorithm>
#include <exception>
#include <utility>

namespace tq {
namespace {

// Stands in for a model while it is made again, and if that fails: it has the bookkeeping of the slots, and the error.
class LostForward final : public Forward {
  public:
    explicit LostForward(const Forward& model) : facts_(without_sampling(model.facts())), cache_(model.cache().shape()) {}
    void keep_tables_of(const Cache::Image& image) { cache_.keep_tables_of(image); }
    void fail_with(std::exception_ptr error) { error_ = std::move(error); }

    bool run(std::span<const Span>, const SpanLogits&, const Progress&) override { std::rethrow_exception(error_); }
    std::vector<std::vector<uint32_t>> draft(std::span<const DraftStart>, uint32_t, DraftIds, const DraftLogits&) override {
        std::rethrow_exception(error_);
    }
    Cache& cache() override { return cache_; }
    const ForwardFacts& facts() const override { return facts_; }

  private:
    const ForwardFacts facts_;
    Cache cache_; // without vectors
    std::exception_ptr error_;
};

// A span of a run that may be interrupted by moves.
struct Interrupted {
    const Span& span;
    size_t number;
    uint32_t start;         // position
    uint32_t passed_on = 0; // ids up to the last one whose logits were
    uint32_t done = 0;      // ids before this attempt

    uint32_t ids() const { return uint32_t(span.ids.size()); }
    // Returns how many ids need not run again, when `run` of them have been.
    uint32_t kept(uint32_t run) const {
        if (span.logits == Span::Logits::all) return std::min(run, passed_on);
        return span.logits == Span::Logits::none || passed_on == ids() ? run : std::min(run, ids() - 1);
    }
    // Returns the position from which the span goes on; before its start if window or states are lost (Cache::kept()).
    uint32_t goes_on_at(const Cache& cache) const {
        const uint32_t position = cache.position(span.slot);
        const bool has_drafts = span.certain < ids(); // which all run again: they would be certain after a move
        return position < start ? position : cache.kept(span.slot, start + (has_drafts ? 0 : kept(position - start)));
    }
};

class PlacedForward final : public Forward {
  public:
    PlacedForward(std::unique_ptr<Forward> first, Remake remake) : model_(std::move(first)), remake_(std::move(remake)) {}

    using Forward::run;
    bool run(std::span<const Span> spans, const SpanLogits& each, const Progress& progress) override;
    std::vector<uint32_t> run_sampled(uint32_t slot, uint32_t id, uint32_t n, const DeviceSampling& sampling) override;
    std::vector<std::vector<uint32_t>> draft(std::span<const DraftStart> starts, uint32_t n, DraftIds ids,
                                             const DraftLogits& each) override {
        return model_->draft(starts, n, ids, each);
    }
    bool reopen(const DeviceLost& error) override;
    void record_again() override { model_->record_again(); }
    Cache& cache() override { return model_->cache(); }
    const ForwardFacts& facts() const override { return model_->facts(); }

  private:
    bool run_rest(std::vector<Interrupted>& all, const SpanLogits& each, const Progress& progress);
    void move(const OutOfMemory& error);
    template <class F> void replace(std::unique_ptr<LostForward> meanwhile, const F& make);

    std::unique_ptr<Forward> model_;
    const Remake remake_;
    bool is_lost_ = false; // it could not be made again
};

// Frees the model's memory before `make` makes it again.
template <class F> void PlacedForward::replace(std::unique_ptr<LostForward> meanwhile, const F& make) {
    LostForward& lost = *meanwhile;
    is_lost_ = true;
    model_ = std::move(meanwhile);
    try {
        model_ = make();
    } catch (...) {
        lost.fail_with(std::current_exception());
        throw;
    }
    is_lost_ = false;
}

// Reads all pages, makes the model again, and writes them there.
void PlacedForward::move(const OutOfMemory& error) {
    if (is_lost_) throw error;
    const Cache::Image image = model_->cache().image();
    auto lost = std::make_unique<LostForward>(*model_);
    lost->keep_tables_of(image);
    replace(std::move(lost), [&] {
        auto made = remake_.with_less(error);
        made->cache().put_back(image);
        return made;
    });
}

bool PlacedForward::reopen(const DeviceLost& error) {
    if (is_lost_ || !remake_.on_new_device) return false;
    replace(std::make_unique<LostForward>(*model_), [&] { return remake_.on_new_device(error); });
    return true;
}

// Runs the rest of the spans.
bool PlacedForward::run_rest(std::vector<Interrupted>& all, const SpanLogits& each, const Progress& progress) {
    std::vector<Interrupted*> left;
    std::vector<Span> spans;
    uint32_t before = 0;
    for (Interrupted& one : all) {
        const uint32_t slot = one.span.slot;
        one.done = cache().cut(slot, one.goes_on_at(cache())) - one.start;
        before += one.done;
        if (one.done == one.ids()) continue;
        left.push_back(&one);
        spans.push_back({slot, one.span.ids.subspan(one.done), one.span.logits, one.span.certain});
    }
    if (spans.empty()) return true;
    const auto pass_on = [&](size_t span, uint32_t i, std::span<const float> values) {
        Interrupted& one = *left[span];
        if (one.done + i < one.passed_on) return; // it was run again for those after it
        one.passed_on = one.done + i + 1;
        each(one.number, one.done + i, values);
    };
    const auto report = [&](uint32_t done, uint32_t total) { return progress(before + done, before + total); };
    return model_->run(spans, pass_on, progress ? Progress(report) : Progress());
}

bool PlacedForward::run(std::span<const Span> spans, const SpanLogits& each, const Progress& progress) {
    std::vector<Interrupted> all;
    std::vector<Cache::Need> needs;
    for (const Span& span : spans) {
        all.push_back({span, all.size(), cache().position(span.slot)});
        needs.push_back({span.slot, uint32_t(span.ids.size())});
    }
    cache().reserve(needs); // a cache that is full is no reason to move
    for (const Span& span : spans)
        if (span.ids.size() > SAMPLING_STEPS) cache().checkpoint(span.slot); // fewer leave a window whole
    for (;;) {
        try {
            return run_rest(all, each, progress);
        } catch (const OutOfMemory& error) {
            for (const Interrupted& one : all)
                if (one.goes_on_at(cache()) < one.start) throw;
            for (const Interrupted& one : all) cache().cut(one.span.slot, one.goes_on_at(cache()));
            move(error);
        } catch (const NonFinite&) {
            for (const Interrupted& one : all) cache().cut(one.span.slot, std::min(one.start, cache().position(one.span.slot)));
            throw;
        }
    }
}

std::vector<uint32_t> PlacedForward::run_sampled(uint32_t slot, uint32_t id, uint32_t n, const DeviceSampling& sampling) {
    cache().reserve(slot, n);
    try {
        return model_->run_sampled(slot, id, n, sampling);
    } catch (const OutOfMemory& error) {
        move(error);
        return {};
    }
}

} // namespace

std::unique_ptr<Forward> make_placed_forward(std::unique_ptr<Forward> first, Remake remake) {
    return std::make_unique<PlacedForward>(std::move(first), std::move(remake));
}

} // namespace tq
