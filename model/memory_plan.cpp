#include "model/memory_plan.h"
#include <fmt/format.h>

namespace tq {

uint32_t largest_context(uint32_t most, const std::function<MemoryPlan(uint32_t)>& plan) {
    uint64_t fits = 0, too_many = uint64_t(most) + 1;
    while (too_many - fits > 1) {
        const uint64_t middle = fits + (too_many - fits) / 2;
        (plan(uint32_t(middle)).fits() ? fits : too_many) = middle;
    }
    return uint32_t(fits);
}

std::string describe(const MemoryPlan& plan) {
    const auto mib = [](uint64_t bytes) { return double(bytes) / (1 << 20); };
    return fmt::format("it needs {:.1f} MiB (weights {:.1f}, KV cache {:.1f}, scratch {:.1f}), and {:.1f} MiB are available",
                       mib(plan.total()), mib(plan.weights), mib(plan.kv_cache), mib(plan.scratch), mib(plan.available));
}

} // namespace tq
