// Every size of Qwen3 at its true width, one layer deep, on a device with the smallest limits that Vulkan allows: no matrix of
// the larger ones fits one binding, and rows of Q6_K in the file are not a multiple of 16 bytes.
#include "model/cpu/forward.h"
#include "model/gpu/forward.h"
#include "model/weights/synthetic/synthetic.h"
#include "tests/support/golden.h"

using namespace tq;

namespace {

void check_size(Device& device, const std::string& shape) {
    CAPTURE(shape);
    const Model model = make_synthetic(parse_synthetic(shape + ":q4_k_m", 1));
    // fp32: if codes are rounded, a value that is next to a threshold may get another one than on the CPU.
    const ForwardOptions options{.kv = {KvType::f32, KvType::f32}, .context_size = 16, .batch_size = 2};
    const auto on_device = make_gpu_forward(device, model.config, model.weights, options),
               on_cpu = make_cpu_forward(model.config, model.weights, options);
    const std::vector<uint32_t> prompt{1, 151935}, next{70000}; // a block, and a single token: rows of several slices
    CHECK(relative_error(on_device->run(prompt), on_cpu->run(prompt)) <= 1e-4);
    CHECK(relative_error(on_device->run(next), on_cpu->run(next)) <= 1e-4);
}

} // namespace

TEST_CASE("every size runs under a 128 MiB binding and a 1 GiB allocation") {
    Device device({}, "spec-minimum");
    const Capabilities& caps = device.capabilities();
    CHECK(caps.storage_range_bytes == 128 << 20);
    CHECK(caps.allocation_bytes <= 1024 << 20);
    check_size(device, "qwen3-32b");            // the largest of all tensors
    if (caps.driver_name != "llvmpipe") return; // the others take minutes
    for (const char* shape : {"qwen3-0.6b", "qwen3-1.7b", "qwen3-4b", "qwen3-8b", "qwen3-14b"}) check_size(device, shape);
}
