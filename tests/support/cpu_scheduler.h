// Shared by tests of the scheduler on the CPU path: a small model, a small hybrid, and prompts of random ids.
#pragma once
#include "model/cpu/forward.h"
#include "tests/support/hybrids.h"
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

inline ModelAlone<SmallModel>& hybrid() {
    static const SmallModel small(small_config(*find_model_type("qwen3_5")));
    static ModelAlone<SmallModel> model(small,
                                        [](const ForwardOptions& o) { return make_cpu_forward(small.config, small.weights, o); });
    return model;
}

inline Ids some_ids(uint32_t count, uint32_t seed = 1) {
    std::mt19937 random(seed);
    return random_ids(random, count);
}

} // namespace tq::test
