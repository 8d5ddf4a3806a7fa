#include "tests/support/golden_device.h"
#include "model/cpu/forward.h"
#include <algorithm>

namespace tq {
namespace {

// The number of vectors of the first layer that are stored differently: they do not depend on the cache.
size_t other_vectors(Forward& a, Forward& b, const KvOptions& kv) {
    size_t count = 0;
    for (const KvSide side : {KvSide::key, KvSide::value}) {
        if (!is_coded(side == KvSide::key ? kv.k : kv.v)) continue;
        StoredSide x = a.stored(0, side), y = b.stored(0, side);
        for (uint32_t head = 0; head < x.heads; head++)
            for (uint32_t t = 0; t < x.tokens; t++)
                count += !std::ranges::equal(x.codes_of(head, t), y.codes_of(head, t)) ||
                         !std::ranges::equal(x.scales_of(head, t), y.scales_of(head, t));
    }
    return count;
}

} // namespace

void check_on_device(Device& device, const Golden& golden) {
    for (const DeviceKernels& kernels : kernels_to_check(device))
        for (const KvType type : {KvType::f32, KvType::f16}) {
            if (type == KvType::f16 && (kernels.exact() || golden.config.architecture->qkv_bias)) continue;
            CAPTURE(kernels.name());
            CAPTURE(std::string(name(type)));
            check_golden(golden, *kernels.make(device, golden.config, golden.weights, {.kv = {type, type}, .context_size = 64}),
                         kernels.limit());
        }
}

void check_compressed(Device& device, const std::vector<std::filesystem::path>& files) {
    const DeviceKernels kernels = exact_kernels(device);
    size_t runs = 0, close = 0, others = 0;
    for (const auto& path : files) {
        const Golden golden = load_golden(path);
        CAPTURE(golden.name);
        for (const KvOptions& kv : {KvOptions{KvType::tq4, KvType::tq4}, KvOptions{KvType::tq3, KvType::tq2},
                                    KvOptions{KvType::f16, KvType::tq3}, KvOptions{KvType::tq2, KvType::f16}}) {
            const std::string types = describe(kv);
            CAPTURE(types);
            const ForwardOptions options{.kv = kv, .context_size = 64};
            const auto on_cpu = make_cpu_forward(golden.config, golden.weights, options),
                       on_device = kernels.make(device, golden.config, golden.weights, options);
            const double error = relative_error(on_device->run(golden.prompt_ids), on_cpu->run(golden.prompt_ids));
            CHECK(error <= 0.1);
            others += other_vectors(*on_device, *on_cpu, kv);
            runs++;
            close += error <= 1e-4;
        }
    }
    CHECK(close * 4 >= runs * 3);
    CHECK(others * 8 <= runs); // of some hundred vectors in each run
}

} // namespace tq
