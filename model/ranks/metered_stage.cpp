#include "model/ranks/metered_stage.h"
#include <chrono>
#include <type_traits>

namespace tq {
namespace {

class MeteredStage final : public Stage {
  public:
    MeteredStage(std::unique_ptr<Stage> stage, std::atomic<uint64_t>& ns, std::atomic<uint64_t>& rows)
        : stage_(std::move(stage)), ns_(ns), rows_(rows) {}

    bool run_block(HalfRange halves, const PassRows& rows, uint32_t whole, std::span<float> h,
                   const KeepGoing& keep_going) override {
        rows_ += rows.count();
        return timed([&] { return stage_->run_block(halves, rows, whole, h, keep_going); });
    }
    bool run_separate(HalfRange halves, const PassRows& rows, std::span<float> h, std::span<const float>* logits,
                      const KeepGoing& keep_going) override {
        rows_ += rows.count();
        return timed([&] { return stage_->run_separate(halves, rows, h, logits, keep_going); });
    }
    std::span<const float> run_head(std::span<const uint32_t> rows, std::span<const float> h, bool separate) override {
        return timed([&] { return stage_->run_head(rows, h, separate); });
    }
    std::span<const float> run_last_norm(std::span<const uint32_t> rows, std::span<const float> h) override {
        return timed([&] { return stage_->run_last_norm(rows, h); });
    }
    PassLimits limits() const override { return stage_->limits(); }
    std::string computation() const override { return stage_->computation(); }
    void record_again() override { stage_->record_again(); }
    CacheVectors& vectors() override { return stage_->vectors(); }

  private:
    template <class F> std::invoke_result_t<F> timed(const F& run) {
        const auto began = std::chrono::steady_clock::now();
        const auto result = run();
        ns_ += uint64_t(std::chrono::nanoseconds(std::chrono::steady_clock::now() - began).count());
        return result;
    }

    const std::unique_ptr<Stage> stage_;
    std::atomic<uint64_t>&ns_, &rows_;
};

} // namespace

std::unique_ptr<Stage> meter_stage(std::unique_ptr<Stage> stage, std::atomic<uint64_t>& ns, std::atomic<uint64_t>& rows) {
    return std::make_unique<MeteredStage>(std::move(stage), ns, rows);
}

} // namespace tq
