// The Vulkan forward pass on the larger set of tiny models: a whole one of every weight format.
#include "model/gpu/forward.h"
#include "tests/support/golden.h"
#include "tests/support/golden_device.h"
#include "tests/support/split_devices.h"

using namespace tq;

TEST_CASE("the device gives the golden logits and greedy tokens of every weight format") {
    const auto files = larger_set_golden_files();
    if (files.empty()) return;
    Device device;
    for (const auto& path : files) check_on_device(device, load_golden(path));
}

TEST_CASE("two devices and the CPU, half a layer each in turn, give the golden logits and greedy tokens") {
    const auto files = other_architectures();
    if (files.empty()) return;
    for (const auto& path : files) {
        const Golden golden = load_golden(path);
        std::vector<uint32_t> device_of(2 * golden.config.num_hidden_layers + 1);
        for (size_t half = 0; half < device_of.size(); half++) device_of[half] = uint32_t(half % 3);
        Devices devices{golden.config, golden.weights};
        check_golden(golden, *devices.make(device_of, {.kv = {KvType::f32, KvType::f32}, .context_size = 64}),
                     own_kernels(devices.first).limit());
    }
}

TEST_CASE("weights quantised while they are uploaded are those of a quantised file") {
    const auto folder = larger_set("qwen3-tiny");
    if (!folder) return;
    Device device;
    for (const auto& [type, name] : {std::pair(GgmlType::Q8_0, "tiny-q8_0.gguf"), {GgmlType::Q4_0, "tiny-q4_0.gguf"}}) {
        Golden golden = load_golden(*folder / name);
        const ModelFile f32 = open_model_file(*folder / "tiny-f32.gguf");
        golden.weights = read_weights(f32, golden.config);
        quantise(golden.weights, type);
        check_on_device(device, golden);
    }
}

TEST_CASE("compressed caches give the CPU's logits, but for values at a threshold") {
    const auto files = larger_set_golden_files();
    if (files.empty()) return;
    Device device;
    check_compressed(device, files);
}
