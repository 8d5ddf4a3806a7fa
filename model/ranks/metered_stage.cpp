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
                   const std::function<bool()>& keep_going) override {
        rows_ += rows.count();
        return timed([&] { return stage_->run_block(halves, rows, whole, h, keep_going); });
    }
    void run_separate(HalfRange halves, const PassRows& rows, std::span<float> h) override {
        rows_ += rows.count();
        timed([&] { return stage_->run_separate(halves, rows, h), true; });
    }
    std::span<const float> run_head(std::span<const float> h, bool separate) override {
        return timed([&] { return stage_->run_head(h, separate); });
    }
    std::span<const float> run_last_norm(std::span<const float> h) override {
        return timed([&] { return stage_->run_last_norm(h); });
    }
    PassLimits limits() const override { return stage_->limits(); }
    std::string computation() const override { return stage_->computation(); }
    void record_again() override { stage_->record_again(); }

    PageLayout page_layout() const override { return stage_->page_layout(); }
    void read_page(uint32_t page, uint32_t tokens, std::span<std::byte> bytes) const override {
        stage_->read_page(page, tokens, bytes);
    }
    void write_page(uint32_t page, uint32_t tokens, std::span<const std::byte> bytes) override {
        stage_->write_page(page, tokens, bytes);
    }
    StoredSide stored(uint32_t slot, uint32_t layer, KvSide side) override { return stage_->stored(slot, layer, side); }
    void copy_page(uint32_t from, uint32_t to, uint32_t tokens) override { stage_->copy_page(from, to, tokens); }
    void copy_window(uint32_t from, uint32_t to) override { stage_->copy_window(from, to); }
    void repeat(uint32_t slot, uint32_t length, uint32_t to) override { stage_->repeat(slot, length, to); }
    std::optional<std::string> find_nonfinite(uint32_t slot) const override { return stage_->find_nonfinite(slot); }

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
