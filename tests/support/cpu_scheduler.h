// Shared by tests of the scheduler on the CPU path: a small model, and prompts of random ids.
#pragma once
#include "model/cpu/forward.h"
#include "tests/support/scheduler.h"

namespace tq::test {

inline const SmallModel& small() {
    static const SmallModel model;
    return model;
}

inline std::unique_ptr<Forward> make(const ForwardOptions& options) {
    return make_cpu_forward(small().config, small().weights, options);
}

inline ModelAlone<SmallModel>& alone() {
    static ModelAlone<SmallModel> model(small(), make);
    return model;
}

inline Ids some_ids(uint32_t count, uint32_t seed = 1) {
    std::mt19937 random(seed);
    return random_ids(random, count);
}

} // namespace tq::test
