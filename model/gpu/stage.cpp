// A device as a Stage: weights, cache, and the recordings of passes (recordings.cpp), which do the work. This file decides what
// the device gets: a tuning, a batch size, how much memory that takes, and whether norms may be folded into products.
// computation() names everything that changes bits, so that pages of the prefix cache never meet those of another computation.
#include "model/gpu/stage.h"
#include "base/error.h"
#include "model/gpu/cache.h"
#include "model/gpu/recordings.h"
#include "model/gpu/tuning_fields.h"
#include "model/gpu/tuning_file.h"
#include "model/gpu/weight_stream.h"

namespace tq {
namespace {

using namespace gpu;

// Makes the vectors of the layers that options hold, with their windows.
DeviceStorage make_vectors(Device& device, const Config& config, const ForwardOptions& options) {
    DeviceStorage out(device, config, options.kv, options.pages(), options.held);
    if (window_bytes(config, options) != 0) out.keep_window(device, options.slots, options.kv.window, options.batch_size);
    out.keep_states(device, config, options.slots, options.pending, options.held);
    return out;
}

// A folded norm is rounded otherwise: rows that must have the bits that they have alone do without, and parts of a model. An
// expert that all tokens have takes the normed h itself, and so does a head for multi-token prediction.
Tuning tuning_for_rows(Tuning tuning, const Config& c, const ForwardOptions& o) {
    tuning.fold_norms = tuning.fold_norms && o.slots == 1 && !o.deterministic && !o.speculative && o.held.all() &&
                        c.shared_expert_intermediate_size == 0 && !c.mtp;
    return tuning;
}

// Names the device, its driver and its kernels. A driver that reads the cache by texel buffers does so up to a size of them.
std::string describe_computation(const Device& device, const Tuning& tuning, const ForwardOptions& options, uint32_t pages) {
    const Capabilities& c = device.capabilities();
    std::string text =
        fmt::format("{} {:x}:{:x}, {} {} {:x}, subgroups of {}, {}", c.name, c.vendor_id, c.device_id, c.driver_name,
                    c.driver_info, c.driver_version, tuning.subgroup, describe(tuning, tuning_fields()));
    text += options.deterministic ? ", separate rows" : fmt::format(", blocks of {}", options.batch_size);
    text += fmt::format(", facts {} {} {} {} {} {} {}x{}x{}", tuning.shared_bytes, tuning.max_workgroup, tuning.float16,
                        tuning.int8_dot, tuning.matrix_subgroup, tuning.fold_norms, tuning.matrix.m, tuning.matrix.n,
                        tuning.matrix.k);
    if (tuning.texel_buffers) text += fmt::format(", texel buffers, {} pages", pages);
    return text;
}

class GpuStage final : public Stage {
  public:
    // stream: brings the weights of networks that are not here; null if nothing is streamed.
    GpuStage(Device& device, const Config& config, std::shared_ptr<const DeviceWeights> weights,
             std::unique_ptr<WeightStream> stream, const Cache& cache, const ForwardOptions& options, const Tuning& tuning,
             std::optional<double> layer_seconds)
        : device_(device), config_(config), options_(options), tuning_(tuning_for_rows(tuning, config, options)),
          weights_(std::move(weights)), stream_(std::move(stream)), vectors_(make_vectors(device, config, options_)),
          cache_vectors_(device, vectors_, cache,
                         [this](uint32_t slot, uint32_t settled, uint32_t tokens) { recordings_.settle(slot, settled, tokens); }),
          recordings_(device, config_, *weights_, options_, tuning_, vectors_, cache,
                      layer_seconds.value_or(max_layer_seconds(device.capabilities().type))) {}

    uint32_t next_rows(uint32_t position, uint32_t max) const override { return recordings_.next_rows(position, max); }
    bool run_block(HalfRange halves, const PassRows& rows, uint32_t whole, std::span<float> h,
                   const KeepGoing& keep_going) override;
    bool run_separate(HalfRange halves, const PassRows& rows, std::span<float> h, std::span<const float>* logits,
                      const KeepGoing&) override { // in one submission
        recordings_.run_separate(halves, rows, h, logits);
        return true;
    }
    std::span<const float> run_head(std::span<const uint32_t> rows, std::span<const float> h, bool separate) override {
        return recordings_.run_head(rows, h, separate);
    }
    std::span<const float> run_last_norm(std::span<const uint32_t> rows, std::span<const float> h) override {
        return recordings_.run_last_norm(rows, h);
    }
    bool drafts() const override { return recordings_.drafts(); }
    std::span<const float> run_draft(const PassRows& rows, DraftIds ids) override { return recordings_.run_draft(rows, ids); }
    std::vector<uint32_t> run_drafts_ahead(const PassRows& row, uint32_t n, DraftIds ids) override {
        return recordings_.run_drafts_ahead(row, n, ids);
    }
    uint32_t max_sampled() const override { return options_.held.all() && recordings_.samples() ? SAMPLING_STEPS : 0; }
    std::vector<uint32_t> run_ahead(const PassRows& row, uint32_t n, const DeviceSampling& sampling) override {
        return recordings_.run_ahead(row, n, sampling);
    }
    PassLimits limits() const override { return Recordings::limits(options_, tuning_); }
    std::string computation() const override { return describe_computation(device_, tuning_, options_, vectors_.pages); }
    void record_again() override { recordings_.forget(); }
    CacheVectors& vectors() override { return cache_vectors_; }

  private:
    Device& device_;
    const Config config_;
    const ForwardOptions options_;
    const Tuning tuning_;
    const std::shared_ptr<const DeviceWeights> weights_;
    const std::unique_ptr<WeightStream> stream_;
    const DeviceStorage vectors_;
    DeviceVectors cache_vectors_;
    Recordings recordings_;
};

// A part of a model runs the rows in as many passes as the device needs to stay responsive.
bool GpuStage::run_block(HalfRange halves, const PassRows& rows, uint32_t whole, std::span<float> h,
                         const KeepGoing& keep_going) {
    if (h.empty()) return recordings_.run_block(halves, rows, whole, h, keep_going);
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

std::shared_ptr<DeviceWeights> gpu::load(Device& device, const Tuning& tuning, const Weights& weights, uint32_t threads,
                                         const LoadProgress& on_load) {
    ThreadPool pool(threads);
    return std::make_shared<DeviceWeights>(upload_weights(device, pool, weights, tuning.weight_interleave, on_load));
}

std::unique_ptr<Stage> make_gpu_stage(Device& device, const Config& config, const Weights& weights, const Cache& cache,
                                      const ForwardOptions& options, const LoadProgress& on_load,
                                      std::optional<double> layer_seconds) {
    const Tuning tuning = tuning_for(device.capabilities());
    const ForwardOptions full = with_batch_size(options, tuning);
    const MemoryPlan plan = plan_memory(device, config, weights, full);
    if (!plan.fits()) fail_out_of_memory("{}: {}", device.capabilities().name, describe(plan));
    require_batch(device.capabilities(), config, tuning, full);
    require_bindable(device.capabilities(), config, full.kv, full.pages());
    auto held = load(device, tuning, held_weights(weights, full.held), full.threads, on_load);
    std::unique_ptr<WeightStream> stream;
    if (!full.streamed.empty())
        stream = std::make_unique<WeightStream>(device, full.threads, weights, full.streamed, tuning.weight_interleave, *held);
    return std::make_unique<GpuStage>(device, config, std::move(held), std::move(stream), cache, full, tuning, layer_seconds);
}

std::unique_ptr<Stage> make_gpu_stage(Device& device, const Config& config, std::shared_ptr<const DeviceWeights> weights,
                                      const Cache& cache, const ForwardOptions& options, const Tuning& tuning,
                                      std::optional<double> layer_seconds) {
    return std::make_unique<GpuStage>(device, config, std::move(weights), nullptr, cache, options, tuning, layer_seconds);
}

} // namespace tq
