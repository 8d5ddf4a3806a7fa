#include "model/gpu/tuning.h"
#include <algorithm>

namespace tq::gpu {

Tuning choose_tuning(const Capabilities& device) {
    // CPU drivers run a workgroup on one core, subgroup after subgroup between barriers: one subgroup per workgroup and no
    // sharing of rows keep barriers cheap, and few tokens per block keep a submit short.
    if (device.type == DeviceType::cpu) return {std::clamp(device.subgroup_size, 4u, 64u), 1, 4, 4, 8, 8, 4, 64, device.shared_memory_bytes};
    return {64, 16, 2, 2, 8, 8, 16, 512, device.shared_memory_bytes};
}

} // namespace tq::gpu
