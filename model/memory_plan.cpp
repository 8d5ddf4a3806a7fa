#include "model/memory_plan.h"
#include <fmt/format.h>

namespace tq {

uint32_t largest_context(uint32_t max, const std::function<MemoryPlan(uint32_t)>& plan) {
    const auto largest = [&](bool (MemoryPlan::*good)() const) {
        uint64_t fits = 0, too_many = uint64_t(max) + 1;
        while (too_many - fits > 1) {
            const uint64_t middle = fits + (too_many - fits) / 2;
            ((plan(uint32_t(middle)).*good)() ? fits : too_many) = middle;
        }
        return uint32_t(fits);
    };
    const uint32_t fitting = largest(&MemoryPlan::fits);
    return fitting != 0 ? fitting : largest(&MemoryPlan::runs);
}

std::string describe(const MemoryPlan& plan) {
    const auto mib = [](uint64_t bytes) { return double(bytes) / (1 << 20); };
    return fmt::format("it needs {:.1f} MiB (weights {:.1f}, KV cache {:.1f}, scratch {:.1f}), and {:.1f} MiB are available",
                       mib(plan.needed()), mib(plan.weights - plan.mapped), mib(plan.kv_cache), mib(plan.scratch),
                       mib(plan.available));
}

} // namespace tq
