// The CPU forward pass against logits from float64 arithmetic on exactly decoded weights.
#include "model/cpu/forward.h"
#include "model/reference/forward.h"
#include "tests/support/golden.h"

using namespace tq;

static void check_on_cpu(const Golden& golden) {
    check_golden(golden,
                 *make_cpu_forward(golden.config, golden.weights, {.kv = {KvType::f32, KvType::f32}, .context_size = 64}));
}

TEST_CASE("the CPU path gives the golden logits and greedy tokens of every weight format") {
    for (const auto& path : golden_files()) check_on_cpu(load_golden(path));
}

TEST_CASE("the reference gives the golden logits, states and greedy tokens") {
    for (const auto& path : golden_files()) {
        const Golden golden = load_golden(path);
        check_golden(golden, *make_reference_forward(golden.config, golden.weights,
                                                     {.kv = {KvType::f32, KvType::f32}, .context_size = 64}, {}));
    }
}

TEST_CASE("weights quantised at load give the golden logits of such weights") {
    for (const GgmlType type : {GgmlType::Q8_0, GgmlType::Q4_0}) check_on_cpu(golden_quantised(type));
}
