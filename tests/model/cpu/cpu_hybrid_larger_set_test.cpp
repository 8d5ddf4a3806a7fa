// The reference and the CPU path on the larger set of tiny hybrids.
#include "model/cpu/forward.h"
#include "model/reference/forward.h"
#include "tests/support/hybrid_golden.h"

using namespace tq;

static const ForwardOptions options{.kv = {KvType::f32, KvType::f32}, .context_size = 128};

TEST_CASE("the reference gives the golden logits, states and greedy tokens of hybrids") {
    for (const auto& path : hybrid_golden_files()) {
        const HybridGolden golden = load_hybrid_golden(path);
        check_hybrid_golden(golden, *make_reference_forward(golden.model.config, golden.model.weights, options, {}));
    }
}

TEST_CASE("the CPU path gives the golden logits, states and greedy tokens of hybrids") {
    for (const auto& path : hybrid_golden_files()) {
        const HybridGolden golden = load_hybrid_golden(path);
        check_hybrid_golden(golden, *make_cpu_forward(golden.model.config, golden.model.weights, options));
    }
}

static const ForwardOptions options_for_drafts{.kv = {KvType::f32, KvType::f32}, .context_size = 128, .pending = 3};

TEST_CASE("the reference gives the golden drafts of a head for multi-token prediction") {
    for (const auto& path : mtp_golden_files()) {
        const HybridGolden golden = load_hybrid_golden(path, true);
        check_mtp_golden(golden, *make_reference_forward(golden.model.config, golden.model.weights, options_for_drafts, {}));
    }
}

TEST_CASE("the CPU path gives the golden drafts of a head for multi-token prediction") {
    for (const auto& path : mtp_golden_files()) {
        const HybridGolden golden = load_hybrid_golden(path, true);
        check_mtp_golden(golden, *make_cpu_forward(golden.model.config, golden.model.weights, options_for_drafts));
    }
}
