// The Vulkan forward pass against the golden logits, and against the CPU path with compressed caches.
#include "model/cpu/forward.h"
#include "model/gpu/forward.h"
#include "tests/golden.h"

using namespace tq;

TEST_CASE("the device gives the golden logits and greedy tokens of every weight format") {
    Device device;
    for (const auto& path : golden_files()) {
        const Golden golden = load_golden(path);
        const auto forward = make_gpu_forward(device, golden.config, golden.weights, {{KvType::f32, KvType::f32}, 64, 0, 0});
        check_golden(golden, *forward);
    }
}

TEST_CASE("compressed caches give the CPU's logits") {
    Device device;
    for (const auto& path : golden_files()) {
        const Golden golden = load_golden(path);
        CAPTURE(golden.name);
        for (const KvOptions& kv : {KvOptions{KvType::tq4, KvType::tq4}, KvOptions{KvType::tq3, KvType::tq2},
                                   KvOptions{KvType::f16, KvType::tq3}, KvOptions{KvType::tq2, KvType::f16}}) {
            CAPTURE(name(kv.k));
            CAPTURE(name(kv.v));
            const auto on_cpu = make_cpu_forward(golden.config, golden.weights, {kv, 64, 0, 0});
            const auto on_device = make_gpu_forward(device, golden.config, golden.weights, {kv, 64, 0, 0});
            CHECK(relative_error(on_device->run(golden.prompt_ids), on_cpu->run(golden.prompt_ids)) <= 1e-4);
        }
    }
}
