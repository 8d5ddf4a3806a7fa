// The Vulkan forward pass on the larger set of tiny models of other architectures: on every driver, and at every size of
// subgroups.
#include "model/gpu/forward.h"
#include "tests/support/embeddings.h"
#include "tests/support/golden.h"
#include "tests/support/golden_device.h"

using namespace tq;

TEST_CASE("the device gives the golden logits and greedy tokens of other architectures") {
    const auto files = other_architectures();
    if (files.empty()) return;
    Device device;
    for (const auto& path : files) check_on_device(device, load_golden(path));
    check_compressed(device, {files.front(), files.back()});
}

TEST_CASE("the device gives the golden vectors of texts") {
    const auto all = golden_embeddings();
    if (all.empty()) return;
    Device device;
    for (const GoldenEmbeddings& golden : all)
        for (const DeviceKernels& kernels : kernels_to_check(device)) {
            const auto forward = kernels.make(device, golden.model.config, golden.model.weights,
                                              {.kv = {KvType::f32, KvType::f32}, .context_size = 128});
            check_embeddings(golden, *forward, kernels.exact() ? written_decimals : kernels.limit());
        }
}
