// The Vulkan forward pass against the golden logits, and against the CPU path with compressed caches.
#include "model/gpu/forward.h"
#include "tests/support/golden.h"
#include "tests/support/golden_device.h"

using namespace tq;

TEST_CASE("the device gives the golden logits and greedy tokens of every weight format") {
    Device device;
    for (const auto& path : golden_files()) check_on_device(device, load_golden(path));
}

TEST_CASE("weights quantised while they are uploaded give the golden logits of such weights") {
    Device device;
    for (const GgmlType type : {GgmlType::Q8_0, GgmlType::Q4_0}) check_on_device(device, golden_quantised(type));
}

TEST_CASE("compressed caches give the CPU's logits, but for values at a threshold") {
    Device device;
    check_compressed(device, golden_files());
}
