// The CPU forward pass against logits from float64 arithmetic on exactly decoded weights.
#include "model/cpu/forward.h"
#include "tests/support/golden.h"

using namespace tq;

TEST_CASE("the CPU path gives the golden logits and greedy tokens of every weight format") {
    for (const auto& path : golden_files()) {
        const Golden golden = load_golden(path);
        const auto forward = make_cpu_forward(golden.config, golden.weights, {{KvType::f32, KvType::f32}, 64, 0, 0});
        check_golden(golden, *forward);
    }
}
