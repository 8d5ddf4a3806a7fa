#include "runtime/subgroup_size.h"
#include <algorithm>

namespace tq {
namespace {

constexpr uint32_t intel = 0x8086, amd = 0x1002;

} // namespace

uint32_t preferred_subgroup_size(const Capabilities& device) {
    uint32_t size = std::min(device.subgroup_size, 64u);
    if (device.vendor_id == intel) size = 8;
    if (device.vendor_id == amd) size = 32;
    return std::clamp(size, device.min_subgroup_size, device.max_subgroup_size);
}

uint32_t matrix_subgroup_size(const Capabilities& device) {
    return device.vendor_id == intel ? preferred_subgroup_size(device) : device.subgroup_size;
}

uint32_t subgroup_size_of(const AnyShader& shader, const Capabilities& device) {
    if (shader.interface.cooperative) return matrix_subgroup_size(device);
    return shader.interface.subgroups ? device.kernel_subgroup_size : 0;
}

} // namespace tq
