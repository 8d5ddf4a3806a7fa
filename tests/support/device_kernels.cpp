#include "tests/support/device_kernels.h"
#include "base/thread_pool.h"
#include "model/gpu/tuning_file.h"

namespace tq {

gpu::Tuning without_halves(gpu::Tuning tuning) {
    tuning.matmul_coopmat = tuning.matmul_dot = false;
    tuning.matvec_dot = 0;
    tuning.attention_coopmat_rows = tuning.decode_subgroups = 0;
    return tuning;
}

std::unique_ptr<Forward> DeviceKernels::make(Device& device, const Config& config, const Weights& weights,
                                             const ForwardOptions& options) const {
    ThreadPool pool(options.threads);
    auto uploaded = gpu::upload_weights(device, pool, weights, tuning.weight_interleave, {});
    return make_gpu_forward(device, config, std::make_shared<const gpu::DeviceWeights>(std::move(uploaded)), options, tuning);
}

DeviceKernels own_kernels(const Device& device) { return {gpu::tuning_for(device.capabilities())}; }

DeviceKernels exact_kernels(const Device& device) {
    const DeviceKernels kernels{without_halves(own_kernels(device).tuning)};
    REQUIRE(refusal(device.capabilities(), kernels.tuning) == "");
    return kernels;
}

std::vector<DeviceKernels> kernels_to_check(const Device& device) {
    std::vector<DeviceKernels> all{exact_kernels(device)};
    if (!own_kernels(device).exact()) all.push_back(own_kernels(device));
    return all;
}

} // namespace tq
