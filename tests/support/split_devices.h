// A model on several devices.
#pragma once
#include "model/cpu/stage.h"
#include "model/gpu/forward.h"
#include "model/gpu/stage.h"
#include "model/gpu/tuning_file.h"
#include "model/stages/split_forward.h"
#include <limits>

namespace tq {

// A model, and devices that share it: two of the driver's, and the CPU.
struct Devices {
    const Config& config;
    const Weights& weights;
    Device first, second;

    Devices(const Config& config, const Weights& weights) : config(config), weights(weights) {}

    static constexpr double unlimited = std::numeric_limits<double>::infinity(); // blocks of the same size in every run

    MakeStage on(Device& device) {
        return [&](const Cache& cache, const ForwardOptions& options) {
            return make_gpu_stage(device, config, weights, cache, options, {}, unlimited);
        };
    }
    MakeStage on_cpu() {
        return [&](const Cache& cache, const ForwardOptions& options) { return make_cpu_stage(config, weights, cache, options); };
    }
    // device_of: of each half and the head: 0 and 1 are the devices, 2 is the CPU.
    std::unique_ptr<Forward> make(const std::vector<uint32_t>& device_of, const ForwardOptions& options,
                                  uint32_t stream_rows = 0) {
        const MakeStage stages[] = {on(first), on(second), on_cpu()};
        return make_split_forward(config, weights, options, Split(device_of, 3, stream_rows), stages);
    }
    std::unique_ptr<Forward> make_whole(const ForwardOptions& options) {
        const gpu::Tuning tuning = gpu::tuning_for(first.capabilities());
        ThreadPool pool(1);
        const auto uploaded =
            std::make_shared<const gpu::DeviceWeights>(gpu::upload_weights(first, pool, weights, tuning.weight_interleave, {}));
        return make_gpu_forward(first, config, uploaded, options, tuning, unlimited);
    }
};

} // namespace tq
