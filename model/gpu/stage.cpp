#include "model/gpu/stage.h"
#include "base/error.h"
#include "model/gpu/passes.h"
#include "model/gpu/recordings.h"
#include "model/gpu/tuning_file.h"
#include "model/gpu/weight_stream.h"

namespace tq {
namespace {

using namespace gpu;

class GpuStage final : public Stage {
  public:
    // all: the weights of the model, of which `weights` are those that it holds.
    GpuStage(Device& device, const Config& config, const Weights& all, std::shared_ptr<DeviceWeights> weights, const Cache& cache,
             const ForwardOptions& options, const Tuning& tuning, double layer_seconds)
        : device_(device), config_(config), options_(options), tuning_(tuning_for_rows(tuning, options)), cache_(cache),
          weights_(std::move(weights)), stream_(make_stream(all)), vectors_(make_vectors(device, config, options_)),
          recordings_(device, config_, *weights_, options_, tuning_, vectors_, cache, layer_seconds) {}

    bool run_block(HalfRange halves, const PassRows& rows, uint32_t whole, std::span<float> h,
                   const std::function<bool()>& keep_going) override;
    void run_separate(HalfRange halves, const PassRows& rows, std::span<float> h) override {
        recordings_.run_separate(halves, rows, h);
    }
    std::span<const float> run_head(std::span<const float> h, bool separate) override {
        recordings_.run_head(h, separate);
        return recordings_.all_computed();
    }
    std::span<const float> run_last_norm(std::span<const float> h) override {
        recordings_.run_last_norm(h);
        return recordings_.all_computed();
    }
    PassLimits limits() const override { return Recordings::limits(options_, tuning_); }
    std::string computation() const override { return gpu::computation(device_, tuning_, options_, vectors_.pages); }
    void record_again() override { recordings_.forget(); }

    PageLayout page_layout() const override { return vectors_.page_layout(); }
    void read_page(uint32_t page, uint32_t tokens, std::span<std::byte> bytes) const override {
        vectors_.read_page(device_, page, tokens, bytes);
    }
    void write_page(uint32_t page, uint32_t tokens, std::span<const std::byte> bytes) override {
        vectors_.write_page(device_, page, tokens, bytes);
    }
    StoredSide stored(uint32_t slot, uint32_t layer, KvSide side) override {
        return vectors_.stored(device_, cache_.table(slot), layer, side, cache_.position(slot));
    }
    void copy_page(uint32_t from, uint32_t to, uint32_t) override { vectors_.copy_page(device_, from, to); }
    void copy_window(uint32_t from, uint32_t to) override { vectors_.copy_window(device_, from, to); }
    void repeat(uint32_t slot, uint32_t length, uint32_t to) override {
        vectors_.repeat(device_, cache_.table(slot), length, to);
    }
    std::optional<std::string> find_nonfinite(uint32_t slot) const override {
        return gpu::find_nonfinite(vectors_, device_, cache_, slot);
    }

  private:
    std::unique_ptr<WeightStream> make_stream(const Weights& all) const {
        if (options_.streamed.empty()) return nullptr;
        return std::make_unique<WeightStream>(device_, options_.threads, all, options_.streamed, tuning_.weight_interleave,
                                              *weights_);
    }

    Device& device_;
    const Config config_;
    const ForwardOptions options_;
    const Tuning tuning_;
    const Cache& cache_;
    const std::shared_ptr<DeviceWeights> weights_;
    const std::unique_ptr<WeightStream> stream_; // null: nothing is streamed
    const KvCache vectors_;
    Recordings recordings_;
};

// Runs the rows in as many passes as the device needs to stay responsive.
bool GpuStage::run_block(HalfRange halves, const PassRows& rows, uint32_t whole, std::span<float> h,
                         const std::function<bool()>& keep_going) {
    const size_t cols = config_.hidden_size;
    for (uint32_t half = halves.begin; half < halves.end; half++)
        if (!options_.held.holds(half)) stream_->bring(half / 2);
    for (uint32_t first = 0, count; first < rows.count(); first += count) {
        const uint32_t left = rows.count() - first;
        count = recordings_.next_rows(rows.rows[first].position, left);
        const std::span<float> part = h.subspan(first * cols, count * cols);
        if (!recordings_.run_block(halves, count == rows.count() ? rows : rows.part(first, count), whole, part, keep_going))
            return false;
    }
    return true;
}

} // namespace

std::unique_ptr<Stage> make_gpu_stage(Device& device, const Config& config, const Weights& weights, const Cache& cache,
                                      const ForwardOptions& options, const LoadProgress& on_load,
                                      std::optional<double> layer_seconds) {
    const Tuning tuning = tuning_for(device.capabilities());
    const ForwardOptions full = with_batch_size(options, tuning);
    const MemoryPlan plan = plan_memory(device, config, weights, full);
    if (!plan.fits()) fail_out_of_memory("{}: {}", device.capabilities().name, describe(plan));
    require_batch(device.capabilities(), config, tuning, full);
    require_bindable(device.capabilities(), config, full.kv, full.pages());
    auto uploaded = load(device, tuning, held_weights(weights, full.held), full.threads, on_load);
    return std::make_unique<GpuStage>(device, config, weights, std::move(uploaded), cache, full, tuning,
                                      layer_seconds.value_or(max_layer_seconds(device.capabilities().type)));
}

} // namespace tq
