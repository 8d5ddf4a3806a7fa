// The Vulkan forward pass on the larger set of tiny hybrids.
#include "model/gpu/forward.h"
#include "tests/support/device_kernels.h"
#include "tests/support/golden.h"
#include "tests/support/hybrid_golden.h"

using namespace tq;

TEST_CASE("the device gives the golden logits, states and greedy tokens of hybrids") {
    const auto files = hybrid_golden_files();
    if (files.empty()) return;
    Device device;
    for (const auto& path : files) {
        const HybridGolden golden = load_hybrid_golden(path);
        for (const DeviceKernels& kernels : kernels_to_check(device)) {
            CAPTURE(kernels.name());
            const auto forward = kernels.make(device, golden.model.config, golden.model.weights,
                                              {.kv = {KvType::f32, KvType::f32}, .context_size = 128});
            check_hybrid_golden(golden, *forward, kernels.limit());
        }
    }
}

TEST_CASE("the device gives the golden drafts of a head for multi-token prediction") {
    const auto files = mtp_golden_files();
    if (files.empty()) return;
    Device device;
    for (const auto& path : files) {
        const HybridGolden golden = load_hybrid_golden(path, true);
        for (const DeviceKernels& kernels : kernels_to_check(device)) {
            CAPTURE(kernels.name());
            const auto forward = kernels.make(device, golden.model.config, golden.model.weights,
                                              {.kv = {KvType::f32, KvType::f32}, .context_size = 128, .pending = 3});
            check_mtp_golden(golden, *forward, kernels.limit());
        }
    }
}
