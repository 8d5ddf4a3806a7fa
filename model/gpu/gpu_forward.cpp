// Makes a model that is all on one device, with as much cache as its memory has room for.
#include "base/error.h"
#include "model/gpu/cache.h"
#include "model/gpu/forward.h"
#include "model/gpu/plan.h"
#include "model/gpu/stage.h"
#include "model/gpu/tuning_file.h"
#include "model/stages/staged_forward.h"
#include <algorithm>

namespace tq {
namespace {

using namespace gpu;

// Returns the options with a cache of as many pages as fit into the device's memory, if those of the context do not.
ForwardOptions with_cache_that_fits(const Device& device, const Config& config, const Weights& weights, ForwardOptions options) {
    MemoryPlan plan = plan_memory(device, config, weights, options);
    if (!plan.fits()) {
        const uint64_t over = plan.total() - plan.available, page = cache_bytes(config, options.kv, 1);
        const uint32_t pages = options.pages(), min = std::min(pages, min_pages);
        options.cache_tokens = std::max(pages - uint32_t(std::min<uint64_t>(pages, over / page + 1)), min) * page_tokens;
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
    return make_gpu_forward(device, config, load(device, tuning, weights, full.threads, on_load), full, tuning);
}

std::unique_ptr<Forward> make_gpu_forward(Device& device, const Config& config, std::shared_ptr<const DeviceWeights> weights,
                                          const ForwardOptions& options, const Tuning& tuning,
                                          std::optional<double> layer_seconds) {
    const ForwardOptions full = with_batch_size(options, tuning);
    require_batch(device.capabilities(), config, tuning, full);
    require_bindable(device.capabilities(), config, full.kv, full.pages());
    return make_staged_forward(config, full, [&](const Cache& cache, const ForwardOptions& whole) {
        return make_gpu_stage(device, config, std::move(weights), cache, whole, tuning, layer_seconds);
    });
}

} // namespace tq
