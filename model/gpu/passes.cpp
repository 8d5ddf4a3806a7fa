#include "model/gpu/passes.h"
#include "base/ensure.h"
#include "base/error.h"
#include "model/gpu/block_pace.h"
#include "model/gpu/forward.h"
#include "model/gpu/recordings.h"
#include "model/gpu/tuning_fields.h"
#include "model/gpu/tuning_file.h"
#include <algorithm>

namespace tq {
namespace gpu {

std::shared_ptr<DeviceWeights> load(Device& device, const Tuning& tuning, const Weights& weights, uint32_t threads,
                                    const LoadProgress& on_load) {
    ThreadPool pool(threads);
    return std::make_shared<DeviceWeights>(upload_weights(device, pool, weights, tuning.weight_interleave, on_load));
}

KvCache make_vectors(Device& device, const Config& config, const ForwardOptions& options) {
    KvCache out(device, config, options.kv, options.pages(), options.held);
    if (window_bytes(config, options) != 0) out.keep_window(device, options.slots, options.kv.window, options.batch_size);
    return out;
}

// A folded norm is rounded otherwise: rows that must have the bits that they have alone do without, and parts of a model.
Tuning tuning_for_rows(Tuning tuning, const ForwardOptions& o) {
    tuning.fold_norms = tuning.fold_norms && o.slots == 1 && !o.deterministic && !o.speculative && o.held.all();
    return tuning;
}

// A driver that reads the cache by texel buffers does so up to a size of them.
std::string computation(const Device& device, const Tuning& tuning, const ForwardOptions& options, uint32_t pages) {
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

std::optional<std::string> find_nonfinite(const KvCache& vectors, Device& device, const Cache& cache, uint32_t slot) {
    auto where = vectors.find_nonfinite(device, cache.table(slot), cache.position(slot));
    if (where && cache.shape().slots > 1) *where += fmt::format(" of slot {}", slot);
    return where;
}

} // namespace gpu

namespace {

using namespace gpu;

class GpuForward final : public Forward {
  public:
    GpuForward(Device& device, const Config& config, std::shared_ptr<const DeviceWeights> weights, const ForwardOptions& options,
               const Tuning& tuning, std::optional<double> layer_seconds)
        : device_(device), config_(config), options_(options), tuning_(tuning_for_rows(tuning, options)),
          weights_(std::move(weights)), vectors_(make_vectors(device, config, options_)),
          cache_(device, vectors_, cache_shape(options_, config.num_hidden_layers)),
          recordings_(device, config_, *weights_, options_, tuning_, vectors_, cache_,
                      layer_seconds.value_or(max_layer_seconds(device.capabilities().type))) {}

    using Forward::run;
    bool run(std::span<const Span> spans, const SpanLogits& each, const Progress& progress) override {
        return run_spans(recordings_, Recordings::limits(options_, tuning_), cache_, spans, each, progress, finder());
    }

    uint32_t max_sampled() const override { return recordings_.samples() ? SAMPLING_STEPS : 0; }
    std::vector<uint32_t> run_sampled(uint32_t id, uint32_t n, const DeviceSampling& sampling) override;

    void record_again() override { recordings_.forget(); }

    uint32_t max_separate_rows() const override { return gpu::max_separate_rows(options_); }
    Cache& cache() override { return cache_; }
    const KvOptions& kv() const override { return options_.kv; }
    uint64_t kv_bytes_per_token() const override { return tq::kv_bytes_per_token(config_, options_.kv); }
    BlockKernels block_kernels() const override { return Recordings::limits(options_, tuning_).kernels; }
    std::string computation() const override;

  private:
    FindNonfinite finder() {
        return [this](uint32_t slot) { return find_nonfinite(vectors_, device_, cache_, slot); };
    }

    Device& device_;
    const Config config_;
    const ForwardOptions options_;
    const Tuning tuning_;
    const std::shared_ptr<const DeviceWeights> weights_;
    const KvCache vectors_;
    DeviceCache cache_;
    Recordings recordings_;
};

std::string GpuForward::computation() const { return gpu::computation(device_, tuning_, options_, vectors_.pages); }

std::vector<uint32_t> GpuForward::run_sampled(uint32_t id, uint32_t n, const DeviceSampling& sampling) {
    const uint32_t start = cache_.position(0);
    ENSURE(n > 0 && n <= SAMPLING_STEPS && n <= options_.context_size - start, "{} tokens at {}", n, start);
    ENSURE(config_.vocab_size <= max_sampling_logits, "{} logits", config_.vocab_size);
    cache_.reserve(0, n);
    PassRows row;
    row.add(0, start, {&id, 1}, cache_.window(0).begin, true);
    std::vector<uint32_t> ids = recordings_.run_ahead(row, n, sampling);
    cache_.advance(0, n);
    cache_.truncate(0, start + std::max(uint32_t(ids.size()), 1u));
    if (ids.empty()) report_nonfinite(cache_, std::array{Cache::Need{0, start}}, finder());
    return ids;
}

// Returns the options with a cache of as many pages as fit into the device's memory, where those of the context do not.
ForwardOptions with_cache_that_fits(const Device& device, const Config& config, const Weights& weights, ForwardOptions options) {
    MemoryPlan plan = plan_memory(device, config, weights, options);
    if (!plan.fits()) {
        const uint64_t over = plan.total() - plan.available, page = cache_bytes(config, options.kv, 1);
        const uint32_t pages = options.pages(), fewest = std::min(pages, fewest_pages);
        options.cache_tokens = std::max(pages - uint32_t(std::min<uint64_t>(pages, over / page + 1)), fewest) * page_tokens;
        plan = plan_memory(device, config, weights, options);
    }
    if (!plan.fits())
        fail("{}: {}. Choose smaller cache types with -ctk and -ctv (now {}) or a smaller model", device.capabilities().name,
             describe(plan), describe(options.kv));
    return options;
}

} // namespace

std::unique_ptr<Forward> make_gpu_forward(Device& device, const Config& config, const Weights& weights,
                                          const ForwardOptions& options, const LoadProgress& on_load) {
    const Tuning tuning = tuning_for(device.capabilities());
    require_batch(device.capabilities(), config, tuning, with_batch_size(options, tuning));
    const ForwardOptions full = with_cache_that_fits(device, config, weights, with_batch_size(options, tuning));
    require_bindable(device.capabilities(), config, full.kv, full.pages());
    return std::make_unique<GpuForward>(device, config, load(device, tuning, weights, full.threads, on_load), full, tuning,
                                        std::nullopt);
}

std::unique_ptr<Forward> make_gpu_forward(Device& device, const Config& config, std::shared_ptr<const DeviceWeights> weights,
                                          const ForwardOptions& options, const Tuning& tuning,
                                          std::optional<double> layer_seconds) {
    const ForwardOptions full = with_batch_size(options, tuning);
    require_batch(device.capabilities(), config, tuning, full);
    require_bindable(device.capabilities(), config, full.kv, full.pages());
    return std::make_unique<GpuForward>(device, config, std::move(weights), full, tuning, layer_seconds);
}

} // namespace tq
