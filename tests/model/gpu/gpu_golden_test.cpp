// The Vulkan forward pass against the golden logits, and against the CPU path with compressed caches.
#include "model/cpu/forward.h"
#include "model/gpu/forward.h"
#include "tests/support/golden.h"
#include "tests/support/skip.h"

using namespace tq;

TEST_CASE("the device gives the golden logits and greedy tokens of every weight format") {
    Device device;
    for (const auto& path : golden_files()) {
        const Golden golden = load_golden(path);
        const auto forward = make_gpu_forward(device, golden.config, golden.weights, {{KvType::f32, KvType::f32}, 64, 0, 0});
        check_golden(golden, *forward);
    }
}

TEST_CASE("weights quantised while they are uploaded are those of a quantised file") {
    const auto folder = shared_folder() / "data/qwen3-tiny";
    if (!std::filesystem::exists(folder)) {
        test::skip("no " + folder.string());
        return;
    }
    Device device;
    for (const auto& [type, name] : {std::pair(GgmlType::Q8_0, "tiny-q8_0.gguf"), {GgmlType::Q4_0, "tiny-q4_0.gguf"}}) {
        Golden golden = load_golden(folder / name);
        const ModelFile f32 = open_model_file(folder / "tiny-f32.gguf");
        golden.weights = read_weights(f32, golden.config);
        quantise(golden.weights, type);
        check_golden(golden, *make_gpu_forward(device, golden.config, golden.weights, {{KvType::f32, KvType::f32}, 64, 0, 0}));
    }
}

// Vectors of the first layer that are stored otherwise: what is stored there depends on no cache.
static size_t other_vectors(Forward& a, Forward& b, const KvOptions& kv) {
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

// Sums in another order differ by rounding, and a value, or a scale, that lies that close to a threshold gets the neighbouring
// level: seldom, but then later layers see it. Kernels are compared code by code, from the same inputs, in `tq-run conformance`.
TEST_CASE("compressed caches give the CPU's logits, but for values at a threshold") {
    Device device;
    size_t runs = 0, close = 0, others = 0;
    for (const auto& path : golden_files()) {
        const Golden golden = load_golden(path);
        CAPTURE(golden.name);
        for (const KvOptions& kv : {KvOptions{KvType::tq4, KvType::tq4}, KvOptions{KvType::tq3, KvType::tq2},
                                    KvOptions{KvType::f16, KvType::tq3}, KvOptions{KvType::tq2, KvType::f16}}) {
            const std::string types = describe(kv);
            CAPTURE(types);
            const auto on_cpu = make_cpu_forward(golden.config, golden.weights, {kv, 64, 0, 0});
            const auto on_device = make_gpu_forward(device, golden.config, golden.weights, {kv, 64, 0, 0});
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
